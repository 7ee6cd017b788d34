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

// between is a Forker that does something after a process has become a rank, and before that rank
// may run.
type between struct {
	*Server
	do func(pid int)
}

func (b between) Fork(birth proc.Birth) (proc.Fork, error) {
	f, err := b.Server.Fork(birth)
	return betweenFork{f, b.do}, err
}

type betweenFork struct {
	proc.Fork
	do func(pid int)
}

func (f betweenFork) Become(c *proc.Command, env []string, files []uintptr) (func(), error) {
	run, err := f.Fork.Become(c, env, files)
	if err == nil {
		f.do(f.Fork.(*fork).pid)
	}
	return run, err
}

// TestTheEnvironmentOfAFork checks that a rank has its own session, and the environment by which
// golaunch finds it, before it runs.
func TestTheEnvironmentOfAFork(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, server := w.server(argv)
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
	p := w.rank(sc, argv, between{s, look})
	if !p.Exit().OK() || !seen {
		t.Errorf("%+v", p.Exit())
	}
}

// elsewhere is a Forker with an invalid cgroup.
type elsewhere struct {
	*Server
	cgroup int
}

func (e elsewhere) Fork(b proc.Birth) (proc.Fork, error) {
	b.Rights, b.Cgroup = &safefile.Rights{}, e.cgroup
	return e.Server.Fork(b)
}

// TestAForkThatIsNotMoved checks that golaunch ends a process that it cannot move to its cgroup,
// and reaps it with its scope. The command then starts without the server.
func TestAForkThatIsNotMoved(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, _ := w.server(argv)
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

// TestAForkThatIsLost checks that a process that golaunch never learns about stays in its server's
// session, ends by itself, and is reaped with the server.
func TestAForkThatIsLost(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, server := w.server(argv)
	others := slices.DeleteFunc(children(t), func(pid string) bool { return pid == strconv.Itoa(server.Pid()) })
	conn, far, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.ask([]int{int(far.Fd())}), far.Close()); err != nil {
		t.Fatal(err)
	}
	answer, err := receive(conn)
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
	if err := errors.Join(conn.Close(), w.servers[0].Close()); err != nil {
		t.Error(err)
	}
	if now := children(t); !slices.Equal(now, others) {
		t.Errorf("children beside the server: %v, without it: %v", others, now)
	}
}

// children returns the children of this process, including zombies.
func children(t testing.TB) []string {
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
