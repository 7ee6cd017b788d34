package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// Bounds for the cost of a start, a fifth above the measured cost. A clock would say more, and
// nothing on a busy machine. Before you raise one, find out why:
// docs/adr/0019-what-a-start-pays-for.md.
const (
	maxInitializers = 215
	// maxGuardianInitializers are those of a guardian, which begins before most packages.
	maxGuardianInitializers = 96
	// maxInitialized is what initializers allocate, in bytes.
	maxInitialized = 450_000
	// maxVersionFaults and maxJobFaults are page faults of golaunch --version, and of a job of one
	// rank with its helpers.
	maxVersionFaults, maxJobFaults = 650, 1400
	// maxHelper is what a helper process has in memory for itself, in KiB.
	maxHelper = 4096
)

// TestStart counts what golaunch does before its own work begins, and for a plain job in all.
func TestStart(t *testing.T) {
	program := unraced(t)
	all, total := initializers(t, exec.Command(program, "--version")), 0
	for _, m := range all {
		size, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		total += size
		if strings.HasPrefix(m[1], "github.com/prometheus/") {
			t.Errorf("every process initializes %s, which the metrics do not need", m[1])
		}
		if strings.HasSuffix(m[1], "/rendezvouspb") {
			t.Errorf("every process registers the messages of %s, which most do not encode", m[1])
		}
	}
	within(t, "initializers", len(all), maxInitializers)
	within(t, "bytes of initializers", total, maxInitialized)
	within(t, "page faults of golaunch --version", faults(t, program, "--version"), maxVersionFaults)
	within(t, "page faults of a job of one rank", faults(t, program, "--procs-per-node", "1", "--", "true"), maxJobFaults)
}

// TestGuardianStart counts what a guardian does before its own work begins. Its owner has died
// already, so it ends.
func TestGuardianStart(t *testing.T) {
	proof, err := helper.File()
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	defer theirs.Close()
	guardian := exec.Command(unraced(t))
	guardian.Args, guardian.ExtraFiles = []string{"rankguard"}, []*os.File{proof, theirs}
	within(t, "initializers of a guardian", len(initializers(t, guardian)), maxGuardianInitializers)
}

// initializers returns the line, the package and the allocated bytes of each initializer that a
// process runs.
func initializers(t *testing.T, cmd *exec.Cmd) [][]string {
	t.Helper()
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &trace)
	}
	// init net/http @2.1 ms, 0.016 ms clock, 4712 bytes, 49 allocs
	all := regexp.MustCompile(`(?m)^init (\S+) @.* clock, (\d+) bytes`).FindAllStringSubmatch(trace.String(), -1)
	if len(all) == 0 {
		t.Fatalf("no initializers in %q", &trace)
	}
	return all
}

// TestHelperMemory has a rank look at the guardian, which is its sibling.
func TestHelperMemory(t *testing.T) {
	const look = `while :; do for f in /proc/[0-9]*; do
		if grep -qs "^Name:.rankguard$" $f/status && grep -q "^PPid:.$PPID$" $f/status; then grep RssAnon $f/status; exit; fi; done; done`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, unraced(t), "--quiet", "--prefix=false", "--procs-per-node", "1", "--", "sh", "-c", look).Output()
	m := regexp.MustCompile(`^RssAnon:\s+(\d+) kB\n$`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("the rank sees %q (%v)", out, err)
	}
	size, _ := strconv.Atoi(string(m[1])) // the expression has digits
	within(t, "KiB of the guardian", size, maxHelper)
}

// unraced is golaunch as users have it: the race detector adds to all of these.
func unraced(t *testing.T) string {
	t.Helper()
	if !suite.All() {
		return golaunch(t)
	}
	program := filepath.Join(t.TempDir(), "golaunch")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// faults runs golaunch and counts the page faults of it and of the processes that it has waited
// for. The least of a few runs counts.
func faults(t *testing.T, program string, args ...string) int {
	t.Helper()
	least := 0
	for range 5 {
		cmd := exec.Command(program, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		if n := int(cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt); least == 0 || n < least {
			least = n
		}
	}
	return least
}

func within(t *testing.T, what string, n, bound int) {
	t.Helper()
	t.Logf("%d %s", n, what)
	if n > bound {
		t.Errorf("%d %s; there may be %d", n, what, bound)
	}
}
