package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// beside is a variable in the environment of tests that another test has started beside a
// coordinator. It has the path of that test's golaunch.
const beside = "GOLAUNCH_TEST_BESIDE"

// TestBesideACoordinator runs these tests where a coordinator of this user runs already. The tests
// look for a coordinator and find none.
func TestBesideACoordinator(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "tests have a network of their own as root alone")
	}
	t.Parallel()
	if os.Getenv(beside) != "" {
		start(t, exec.Command(golaunch(t), "status"), "GOLAUNCH_COORDINATOR=").ends(125, "no coordinator")
		return
	}
	node, home := nettest.Nodes(t, "10.77.0.2")[0], "HOME="+t.TempDir()
	head := start(t, node.Command(golaunch(t), "coordinator", "--listen", "127.0.0.1:0"), home)
	head.line("golaunch agent --coordinator")
	start(t, node.Command(golaunch(t), "status"), "GOLAUNCH_COORDINATOR=", home).ends(0)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOLAUNCH_TEST_APART=") }), home, beside+"="+filepath.Dir(golaunch(t)))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	head.signal(syscall.SIGTERM)
	ended(t, head)
}
