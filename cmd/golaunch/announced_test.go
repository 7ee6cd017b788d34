package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/wire"
)

// TestACoordinatorThatIsNotOurs: a coordinator of another user, in the place of this user's
// coordinator, prevents no job from running.
func TestACoordinatorThatIsNotOurs(t *testing.T) {
	t.Parallel()
	node, home := nettest.Nodes(t, "10.77.0.2")[0], t.TempDir()
	job := func(args ...string) *process {
		cmd := node.Command(append([]string{golaunch(t)}, args...)...)
		return start(t, cmd, "HOME="+home, "GOLAUNCH_COORDINATOR=")
	}
	const squat = `import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("\0golaunch-coordinator-0")
s.listen()
print("squats", flush=True)
while True:
    c, _ = s.accept()
    try:
        c.sendall(b"10.77.0.2:29400 %s\n" % sys.argv[1].encode())
    except OSError:
        pass
    c.close()
`
	plain := []string{"--procs-per-node", "1", "--", "echo", "it runs"}
	stands := func(want string, squatter ...string) {
		t.Helper()
		p := start(t, node.Command(squatter...))
		p.line("squats")
		job(plain...).ends(0, "warning: this job runs here instead of on a cluster: ", want, "it runs")
		job("--detach", "--procs-per-node", "1", "--", "true").ends(125, want)
		job("status").ends(125, want)
		p.kill()
	}
	stands("passes itself off as the coordinator of uid 0", "setpriv", "--reuid", "1234", "--clear-groups", "/usr/bin/python3", "-c", squat, strconv.Itoa(wire.Protocol))
	stands("another version of golaunch", "/usr/bin/python3", "-c", squat, "999")
	stands("there is no token here", "/usr/bin/python3", "-c", squat, strconv.Itoa(wire.Protocol))
	if err := errors.Join(os.MkdirAll(filepath.Join(home, ".golaunch"), 0o700),
		os.WriteFile(filepath.Join(home, ".golaunch", "token"), []byte(strings.Repeat("h", 32)), 0o600)); err != nil {
		t.Fatal(err)
	}
	stands("cannot reach the coordinator at 10.77.0.2:29400", "/usr/bin/python3", "-c", squat, strconv.Itoa(wire.Protocol))

	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "token"), []byte(strings.Repeat("x", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	head := start(t, node.Command(golaunch(t), "coordinator", "--listen", "10.77.0.2", "--token-file", filepath.Join(other, "token"), "--state-dir", other), "HOME="+home)
	head.line("golaunch agent --coordinator 10.77.0.2:29400")
	job(plain...).ends(0, "warning: this job runs here instead of on a cluster: ", "token", "it runs")
	job(append([]string{"--token-file", filepath.Join(other, "token"), "--detach"}, plain...)...).ends(0)
}
