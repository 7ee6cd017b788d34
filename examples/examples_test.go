// Package examples_test runs the examples that need nothing but Go; cmd/golaunch tests the others.
package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// TestGoTrainer runs the program that launches itself: its planted failure restarts all four ranks
// once.
func TestGoTrainer(t *testing.T) {
	out, err := example(t, "go-trainer").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wants := []string{"a planted failure at step 50", "exited with code 1", "restart 1 of 1", "job succeeded: 4 ranks exited 0 after 1 restart"}
	for rank := range 4 {
		wants = append(wants, fmt.Sprintf("rank %d of 4, attempt 1: w = 3.000", rank))
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
}

// TestGoController runs the program on a cluster of one node.
func TestGoController(t *testing.T) {
	cluster := clustertest.Start(t, 0)
	cmd := example(t, "go-controller")
	cmd.Env = append(cmd.Env, "GOLAUNCH_COORDINATOR="+cluster.Coordinator, "GOLAUNCH_TOKEN="+clustertest.Token)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "worker 3: ") || !strings.Contains(string(out), "pi is about 3.14159") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHelloAlone: without a launcher, the program reports that there is none.
func TestHelloAlone(t *testing.T) {
	out, err := example(t, "hello").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not started by a launcher") {
		t.Errorf("%v\n%s", err, out)
	}
}

// example builds an example and returns it as a command, with a temporary directory of its own for
// logs.
func example(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, name)
	if out, err := exec.Command("go", "build", "-o", program, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return cmd
}
