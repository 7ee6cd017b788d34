package proc

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestRoomInACgroup asks for the room in a cgroup with a limit, and in a cgroup below it.
func TestRoomInACgroup(t *testing.T) {
	if os.Getenv("ROOM") != "" {
		room, why := cgroup.ProcessRoom()
		if room > 99 || !strings.Contains(why, "is 100") {
			t.Errorf("room for %d: %s", room, why)
		}
		for n, fine := range map[int]bool{1: true, 101: false} {
			if err := Room(n, nil); (err == nil) != fine {
				t.Errorf("%d: %v", n, err)
			}
		}
		return
	}
	m, ok := cgroup.FindMount("pids")
	if !ok {
		m, _ = cgroup.FindMount("")
		_ = os.WriteFile(filepath.Join(m.Own, "cgroup.subtree_control"), []byte("+pids"), 0)
	}
	dir := filepath.Join(m.Own, "room-"+filepath.Base(t.TempDir()))
	below := filepath.Join(dir, "below")
	err := os.MkdirAll(below, 0o755)
	if err == nil {
		defer func() { must(t, errors.Join(os.Remove(below), os.Remove(dir))) }()
		err = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("100"), 0)
	}
	if err != nil {
		suite.Missing(t, "no cgroup can be given a limit: %v", err)
	}
	c := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, below, os.Args[0], "-test.run=^TestRoomInACgroup$")
	c.Env = append(os.Environ(), "ROOM=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRoomOfAUser: the user is near his limit, and is not root.
func TestRoomOfAUser(t *testing.T) {
	if os.Getenv("ROOM") != "" {
		if err := Room(1, nil); err != nil {
			t.Error(err)
		}
		if err := Room(2000, nil); err == nil || !strings.Contains(err.Error(), "may have 2000 on this node: raise it (ulimit -u;") {
			t.Error(err)
		}
		return
	}
	if room, _ := cgroup.ProcessRoom(); room != math.MaxInt {
		t.Log("this cgroup has room for", room)
	}
	c := exec.Command("prlimit", "--nproc=2000", os.Args[0], "-test.run=^TestRoomOfAUser$")
	if os.Getuid() == 0 {
		program := filepath.Join(t.TempDir(), "test") // another user may enter it
		must(t, os.Chmod(filepath.Dir(program), 0o755))
		must(t, os.Chmod(filepath.Dir(filepath.Dir(program)), 0o755))
		text, err := os.ReadFile(os.Args[0])
		must(t, err)
		must(t, os.WriteFile(program, text, 0o755))
		c = exec.Command("setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "prlimit", "--nproc=2000", program, "-test.run=^TestRoomOfAUser$")
		c.Dir = "/"
	}
	c.Env = append(os.Environ(), "ROOM=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
