package forkserver

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// waiting returns the children of this process except the given ones.
func waiting(t testing.TB, but ...string) []int {
	t.Helper()
	var pids []int
	for _, child := range children(t) {
		if pid, err := strconv.Atoi(child); err == nil && !slices.Contains(but, child) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestForksAhead checks that processes that were forked ahead become ranks of their scope, even if
// some of them have died, and that processes that are not needed end.
func TestForksAhead(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "import os; print(os.getpid(), os.environ['NEW'])"}
	s, _ := w.server(argv)
	before := children(t)
	sc := w.scope("next")
	var ahead []int
	for range 4 {
		if err := sc.Ahead(s, nil); err != nil {
			t.Fatal(err)
		}
		ahead = waiting(t, before...)
	}
	if len(ahead) != 4 {
		t.Fatalf("%v wait", ahead)
	}
	for _, pid := range ahead {
		if session, err := unix.Getsid(pid); session != pid || err != nil {
			t.Errorf("process %d waits in session %d: %v", pid, session, err)
		}
		if rank, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup"); err != nil || proc.Holds() && !strings.Contains(string(rank), "next") {
			t.Errorf("process %d waits in the cgroup %s: %v", pid, rank, err)
		}
	}
	if err := unix.Kill(ahead[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	become := func() int {
		t.Helper()
		p := w.rank(sc, argv, s, "NEW=1")
		if !p.Exit().OK() {
			t.Errorf("%+v", p.Exit())
		}
		return p.Pid()
	}
	for range 2 {
		if pid := become(); !slices.Contains(ahead[1:], pid) {
			t.Errorf("rank %d is none of %v", pid, ahead[1:])
		}
	}
	sc.Dismiss()
	if pid := become(); slices.Contains(ahead, pid) {
		t.Errorf("rank %d waited, and was not needed any more", pid)
	}
	if err := sc.Ahead(s, nil); err != nil {
		t.Error(err)
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	if now := children(t); !slices.Equal(now, before) {
		t.Errorf("children before: %v, now: %v", before, now)
	}
	if err := sc.Ahead(s, nil); err == nil {
		t.Error("a process waits in a scope that has ended")
	}
}

// TestForksAheadOfAnotherServer checks that forks of a replaced server, which still wait, become no
// ranks.
func TestForksAheadOfAnotherServer(t *testing.T) {
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	old, _ := w.server(argv)
	s, _ := w.server(argv)
	before := children(t)
	sc := w.scope("next")
	if err := sc.Ahead(old, nil); err != nil {
		t.Fatal(err)
	}
	ahead := waiting(t, before...)
	p := w.rank(sc, argv, s)
	if !p.Exit().OK() || slices.Contains(ahead, p.Pid()) {
		t.Errorf("rank %d, ahead %v: %+v", p.Pid(), ahead, p.Exit())
	}
}
