package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLittleAddressSpace: golaunch reports in one line a problem that Go's runtime would report
// with a trace or with a thread that does not start.
func TestLittleAddressSpace(t *testing.T) {
	t.Parallel()
	for _, kib := range []string{"800000", "1000000", "1500000"} {
		p := start(t, exec.Command("sh", "-c", `ulimit -v "$1" && exec "$0" -n 2 -- true`, golaunch(t), kib))
		p.ends(125, "the limit of address space (ulimit -v) is ", " MiB, and golaunch needs 2048: raise it, ")
		if _, text := p.wait(); strings.Count(text, "\n") != 1 {
			t.Errorf("with %s KiB it says more than a line", kib)
		}
	}
}
