package main

import (
	"bytes"
	"fmt"
	"math"
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

// Bounds for the cost of a start, a fifth above the measured cost. A clock would say more, but
// nothing reliable on a busy machine. Before you raise one, find out why:
// docs/adr/0019-what-a-start-pays-for.md.
const (
	maxInitializers = 215
	// maxGuardianInitializers bounds the initializers of a guardian, which begins before most
	// packages.
	maxGuardianInitializers = 96
	// maxInitialized bounds the memory that initializers allocate, in bytes.
	maxInitialized = 450_000
	// maxVersionFaults and maxJobFaults bound the page faults of golaunch --version, and of a job
	// of one rank with its helpers.
	maxVersionFaults, maxJobFaults = 650, 1400
	// maxHelper bounds the memory that a helper process has for itself, in KiB.
	maxHelper = 4096
)

// TestStart measures the start of golaunch before its own work begins, and a plain job as a whole.
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
	faults(t, "page faults of golaunch --version", maxVersionFaults, program, "--version")
	faults(t, "page faults of a job of one rank", maxJobFaults, program, "--procs-per-node", "1", "--", "true")
}

// TestGuardianStart measures the start of a guardian before its own work begins. Its owner has
// already died, so the guardian ends.
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

// TestHelperMemory looks at the guardian of a job that runs.
func TestHelperMemory(t *testing.T) {
	p := start(t, exec.Command(unraced(t), "--quiet", "--procs-per-node", "1", "--", "sh", "-c", "echo up; exec sleep 1000"))
	p.line("up$")
	guardian := regexp.MustCompile(fmt.Sprintf(`(?ms)^Name:\trankguard\n.*^PPid:\t%d\n.*^RssAnon:\s+(\d+) kB\n`, p.cmd.Process.Pid))
	for limit := time.Now().Add(patience); time.Now().Before(limit); { // it takes its name a moment after it began
		paths, err := filepath.Glob("/proc/[0-9]*/status")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			status, _ := os.ReadFile(path) // a process may have ended
			if m := guardian.FindSubmatch(status); m != nil {
				size, _ := strconv.Atoi(string(m[1])) // the expression matches digits
				within(t, "KiB of the guardian", size, maxHelper)
				return
			}
		}
	}
	t.Error("a job with a rank has no guardian")
}

// unraced returns golaunch as users have it: the race detector would increase all these values.
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

// faults counts the page faults of golaunch and of the processes that it has waited for. A busy
// machine adds some, so the least of several runs counts, up to the first within the bound.
func faults(t *testing.T, what string, bound int, program string, args ...string) {
	t.Helper()
	least := math.MaxInt
	for range 20 {
		cmd := exec.Command(program, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		if least = min(least, int(cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt)); least <= bound {
			break
		}
	}
	within(t, what, least, bound)
}

func within(t *testing.T, what string, n, bound int) {
	t.Helper()
	t.Logf("%d %s", n, what)
	if n > bound {
		t.Errorf("%d %s; there may be %d", n, what, bound)
	}
}
