package fabric

import (
	"fmt"
	"os"
	"testing"

	"github.com/golaunch/golaunch/internal/process/internalverbs"
)

// TestMain makes of this binary a rank, as the golaunch command does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == internalverbs.Fabric {
		if err := Rank(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
