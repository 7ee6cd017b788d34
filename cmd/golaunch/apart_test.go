package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestBesideACoordinator runs these tests where this user's coordinator runs already, and looks for
// one in them: they find none.
func TestBesideACoordinator(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "tests have a network of their own as root alone")
	}
	const beside = "GOLAUNCH_TEST_BESIDE"
	status := func() *process { return start(t, exec.Command(golaunch(t), "status"), "GOLAUNCH_COORDINATOR=") }
	if os.Getenv(beside) != "" {
		status().ends(125, "no coordinator")
		return
	}
	home := "HOME=" + t.TempDir()
	head := start(t, exec.Command(golaunch(t), "coordinator", "--listen", "127.0.0.1:0"), home)
	head.line("golaunch agent --coordinator")
	start(t, exec.Command(golaunch(t), "status"), "GOLAUNCH_COORDINATOR=", home).ends(0)
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOLAUNCH_TEST_APART=") }), home, beside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	head.signal(syscall.SIGTERM)
	ended(t, head)
}
