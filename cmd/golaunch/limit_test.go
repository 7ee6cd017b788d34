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

// TestFewOpenFiles: if golaunch may open too few files, it names the limit and what to set, and no
// other directory for the logs.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"8", "10", "12"} {
		p := start(t, exec.Command("sh", "-c", `ulimit -n "$1" && exec "$0" -n 2 -- true`, golaunch(t), n))
		p.ends(125, "too many open files; the limit of open files (ulimit -n) is "+n+", and golaunch needs more: raise it to 4096 or more")
		if _, text := p.wait(); strings.Contains(text, "--log-dir") {
			t.Errorf("with %s files it advises another directory", n)
		}
	}
	start(t, exec.Command("sh", "-c", `ulimit -n 24 && exec "$0" -- true`, golaunch(t))).
		ends(125, "1 ranks need ", " open files, and golaunch may have 24 on this node: raise the limit (ulimit -n;")
}
