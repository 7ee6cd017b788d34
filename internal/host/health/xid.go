package health

import (
	"strconv"
	"strings"
)

// Xid is an event of a GPU that its driver wrote to the kernel log.
type Xid struct {
	Number int
	// PCI is the GPU's address as the driver writes it, "0000:0f:00".
	PCI string
}

// maxXids bounds the Xids of a log; the newest are kept.
const maxXids = 1000

// ParseXids finds the lines "NVRM: Xid (PCI:0000:0f:00): 79, pid=..." of a kernel log, oldest
// first.
func ParseXids(log string) (xids []Xid) {
	for line := range strings.SplitSeq(log, "\n") {
		_, event, found := strings.Cut(line, "NVRM: Xid (")
		if !found {
			continue
		}
		at, rest, _ := strings.Cut(event, "): ")
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || n <= 0 {
			continue
		}
		xids = append(xids, Xid{Number: n, PCI: strings.TrimPrefix(at, "PCI:")})
	}
	return xids[max(0, len(xids)-maxXids):]
}
