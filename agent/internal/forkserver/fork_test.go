package forkserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// between is a Forker that does something after its server has made a process, and before that may
// run.
type between struct {
	*Server
	do func(pid int)
}

func (b between) Fork(c *proc.Command, env []string, files []uintptr, cgroup int) (int, func(), error) {
	pid, run, err := b.Server.Fork(c, env, files, cgroup)
	if err == nil {
		b.do(pid)
	}
	return pid, run, err
}

// A process is found by its environment from the time that it is not found by its server's session
// any more.
func TestTheEnvironmentOfAFork(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, server, err := w.serve(argv)
	if err != nil {
		t.Fatal(err)
	}
	sc := w.scope("rank")
	seen := false
	look := func(pid int) {
		seen = true
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Error(err)
		}
		if words := strings.Split(string(env), "\x00"); !slices.Contains(words, sc.Env()) || bytes.Count(env, []byte("RANKGUARD_")) != 1 {
			t.Errorf("the environment of a rank that does not run yet is %q", words)
		}
		if session, err := unix.Getsid(pid); session != pid || err != nil {
			t.Errorf("its session is %d (its server is %d): %v", session, server.Pid(), err)
		}
	}
	p, err := sc.Start(proc.Command{Path: argv[0], Args: argv, Env: w.env, Dir: w.dir, Forker: between{s, look}, ForkOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Exit().OK() || !seen {
		t.Errorf("%+v", p.Exit())
	}
}

// elsewhere is a Forker with an invalid cgroup.
type elsewhere struct {
	*Server
	cgroup int
}

func (e elsewhere) Fork(c *proc.Command, env []string, files []uintptr, _ int) (int, func(), error) {
	moved := *c
	moved.Rights = &safefile.Rights{}
	return e.Server.Fork(&moved, env, files, e.cgroup)
}

// A process that cannot be moved to its cgroup is ended and reaped with its scope, and its command
// starts without the server.
func TestAForkThatIsNotMoved(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, _, err := w.serve(argv)
	if err != nil {
		t.Fatal(err)
	}
	before := children(t)
	dir, err := os.Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	sc := w.scope("rank")
	p, err := sc.Start(proc.Command{Path: argv[0], Args: argv, Env: w.env, Dir: w.dir, Forker: elsewhere{s, int(dir.Fd())}})
	if err != nil {
		t.Fatal(err)
	}
	if forked, why := p.Forked(); forked || why == nil || !strings.Contains(why.Error(), "cgroup of a rank") {
		t.Errorf("forked %v: %v", forked, why)
	}
	if !p.Exit().OK() {
		t.Errorf("%+v", p.Exit())
	}
	if now := children(t); len(now) != len(before)+2 {
		t.Errorf("children before: %v, now: %v", before, now)
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	if now := children(t); !slices.Equal(now, before) {
		t.Errorf("children before: %v, now: %v", before, now)
	}
}

// A process that golaunch never learns about stays in its server's session, ends by itself, and is
// reaped with the server.
func TestAForkThatIsLost(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	p, err := Parse(argv)
	if err != nil {
		t.Fatal(err)
	}
	s, server, err := w.serve(argv)
	if err != nil {
		t.Fatal(err)
	}
	others := slices.DeleteFunc(children(t), func(pid string) bool { return pid == strconv.Itoa(server.Pid()) })
	gate := make([]int, 2)
	if err := unix.Pipe2(gate, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	order := words(&proc.Command{Args: argv, Dir: w.dir}, p, w.env)
	answer, err := s.ask(order, []int{fd, fd, fd, gate[0]})
	if err != nil || len(answer) != 2 || answer[0] != "pid" {
		t.Fatalf("%q: %v", answer, err)
	}
	var pid int
	if _, err := fmt.Sscan(answer[1], &pid); err != nil {
		t.Fatal(err)
	}
	if session, err := unix.Getsid(pid); session != server.Pid() || err != nil {
		t.Errorf("its session is %d (its server is %d): %v", session, server.Pid(), err)
	}
	if err := errors.Join(unix.Close(gate[0]), unix.Close(gate[1]), w.servers[0].Close()); err != nil {
		t.Error(err)
	}
	if now := children(t); !slices.Equal(now, others) {
		t.Errorf("children beside the server: %v, without it: %v", others, now)
	}
}

// children are this process's, zombies included.
func children(t *testing.T) []string {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(text))...)
	}
	slices.Sort(all)
	return all
}
