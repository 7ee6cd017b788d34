package session

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
)

// TestAnother has a node whose name is taken, first by another machine, then on its own machine.
func TestAnother(t *testing.T) {
	e := RefusedError{Node: "vm", Taken: netip.MustParseAddr("fd00::1")}
	for _, want := range []string{"vm-fd00--1", fmt.Sprintf("vm-fd00--1-%d", os.Getpid())} {
		if e.Node = e.Another(); e.Node != want {
			t.Errorf("%s, want %s", e.Node, want)
		}
	}
	if name := (&RefusedError{Node: "vm"}).Another(); name != "" {
		t.Errorf("refused for something else: %s", name)
	}
}
