package jobflags

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes.
type size struct{ bytes *int64 }

func (s size) Type() string { return "SIZE" }

// sizeUnits are the units of IEC 80000-13, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (s size) String() string {
	if s.bytes == nil {
		return ""
	}
	for _, unit := range sizeUnits {
		if *s.bytes%unit.bytes == 0 && *s.bytes >= unit.bytes {
			return strconv.FormatInt(*s.bytes/unit.bytes, 10) + unit.name
		}
	}
	return "0"
}

func (s size) Set(text string) error {
	for _, unit := range sizeUnits {
		number, has := strings.CutSuffix(text, unit.name)
		if !has {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > 1<<62/unit.bytes {
			break
		}
		*s.bytes = n * unit.bytes
		return nil
	}
	return fmt.Errorf("%q: a number of bytes, or one with KiB, MiB or GiB, such as 2GiB", text)
}
