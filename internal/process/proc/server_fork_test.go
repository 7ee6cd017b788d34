package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// forker is a Forker that forks nothing, and returns when the test tells it to.
type forker struct{ asked, answer chan struct{} }

func (f forker) Fork(Birth) (Fork, error) {
	close(f.asked)
	<-f.answer
	return nil, errors.New("it cannot")
}

// A Forker that does not answer delays only its own scope.
func TestSlowForker(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		slow := forker{make(chan struct{}), make(chan struct{})}
		waiting := newTestScope(t, s)
		started := make(chan error, 1)
		go func() {
			c := shell("exit 0", nil)
			c.Forker = slow
			p, err := waiting.Start(c)
			if err == nil {
				<-p.Done()
				_, err = p.Forked()
			}
			started <- err
		}()
		<-slow.asked
		other := newTestScope(t, s)
		done := make(chan error, 1)
		go func() {
			_, err := other.Start(shell("sleep 1000", nil))
			other.Signal(unix.SIGUSR1)
			s.reapOrphans()
			done <- errors.Join(err, other.Close())
		}()
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(patience):
			t.Error("a scope waits for the Forker of another")
		}
		close(slow.answer)
		if err := <-started; err == nil || err.Error() != "it cannot" {
			t.Errorf("the process was started because %v", err)
		}
	})
}

// parent is a server that makes a child of its own parent and prints the numbers of the child and
// of a thread. The child reads its input.
func parent() {
	child, err := syscall.ForkExec("/bin/cat", []string{"cat"}, &syscall.ProcAttr{
		Files: []uintptr{0, 2, 2}, Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT},
	})
	if err != nil {
		fmt.Println(err)
	}
	thread := make(chan int)
	for range 2 { // one of the two is not the first thread
		go func() {
			runtime.LockOSThread()
			thread <- unix.Gettid()
			select {}
		}()
	}
	a, b := <-thread, <-thread
	fmt.Println(child, max(a, b))
	select {}
}

// namer is a Forker that names a process as its fork, gets the answer, and then fails.
type namer struct {
	pid         int
	born, apart error
}

func (n *namer) Fork(b Birth) (Fork, error) {
	if n.born = b.Born(n.pid); n.born == nil {
		n.apart = b.Apart()
	}
	return nil, errors.New("it cannot")
}

// A scope accepts no process that its Forker cannot have made, even if the server names it.
func TestFalseForks(t *testing.T) {
	s := newSupervisor(t, Options{Subreaper: true})
	in, words := newOutput(t), newOutput(t)
	serving := newTestScope(t, s)
	c := Command{Path: "/proc/self/exe", Args: []string{"parent"}, Env: []string{"PROC_TEST_PARENT=1"}, Stdin: in.f, Stdout: words.w, Serves: true}
	server := start(t, serving, c)
	must(t, in.f.Close())
	var fork, thread int
	_, err := fmt.Sscan(words.line(), &fork, &thread)
	must(t, err)
	ranks := newTestScope(t, s)
	rank := start(t, ranks, shell("sleep 1000", nil))
	child := exec.Command("sleep", "1000")
	must(t, child.Start())
	t.Cleanup(func() { must(t, errors.Join(child.Process.Kill(), waitKilled(child))) })
	name := func(pid int) *namer {
		n := &namer{pid: pid}
		c := shell("exit 0", nil)
		c.Forker, c.ForkOnly = n, true
		sc := newTestScope(t, s)
		if _, err := sc.Start(c); err == nil {
			t.Errorf("process %d was started", pid)
		}
		if n.born != nil && len(sc.procs) > 0 {
			t.Errorf("process %d was refused, and is in the scope", pid)
		}
		must(t, sc.Close())
		return n
	}
	for _, is := range []struct {
		what string
		pid  int
		want string
	}{
		{"init", 1, "is a child of process"},
		{"nobody", 0, "no such process"},
		{"all", -1, "no such process"},
		{"a group", -rank.Pid(), "no such process"},
		{"more than a pid_t", 1<<32 + rank.Pid(), "it is gone"},
		{"golaunch", os.Getpid(), fmt.Sprint("is a child of process ", os.Getppid())},
		{"a child that is not forked", child.Process.Pid, "not that of a fork server"},
		{"the guardian", s.guard.PID(), "not that of a fork server"},
		{"a rank", rank.Pid(), "not that of a fork server"},
		{"the server", server.Pid(), "knows it as another one"},
		{"a thread", thread, "no such process"},
	} {
		if err := examineNumber(s, is.pid); is.pid <= 1 && err == nil {
			t.Fatalf("%s is taken for a fork", is.what) // ending it would end this machine's processes
		}
		if n := name(is.pid); n.born == nil || !strings.Contains(n.born.Error(), is.want) {
			t.Errorf("%s is a fork because %v, want %q", is.what, n.born, is.want)
		}
	}
	other := &safefile.Rights{UID: uint32(os.Geteuid()) + 1}
	if _, err := ranks.admit(fork, other); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("does not run as uid %d alone", other.UID)) {
		t.Errorf("a fork of this user's is uid %d's: %v", other.UID, err)
	}
	if n := name(fork); n.born != nil || n.apart == nil || !strings.Contains(n.apart.Error(), fmt.Sprint("still in session ", server.Pid())) {
		t.Errorf("a fork is refused because %v, and in its own session because %v", n.born, n.apart)
	}
	if n := name(fork); n.born == nil {
		t.Error("a fork that was ended and reaped is one again")
	}
	for _, pid := range []int{server.Pid(), rank.Pid(), child.Process.Pid, s.guard.PID()} {
		if st, ok := procfs.ReadStat(pid); !ok || st.Dead() {
			t.Errorf("process %d has ended: %v", pid, st)
		}
	}
}

func examineNumber(s *Supervisor, pid int) error {
	h := procfs.Open(pid)
	defer h.Close()
	return s.checkFork(h, nil)
}

// waitKilled reaps a process that was killed.
func waitKilled(cmd *exec.Cmd) error {
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		return fmt.Errorf("it has ended by itself: %v", cmd.ProcessState)
	}
	return nil
}

// A fork server may outlive all scopes, and the processes with its mark stay alive; an orphan
// without a mark does not stay alive.
func TestOrphansBesideAServer(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		hidden, marked := newOutput(t), newOutput(t)
		server := newTestScope(t, s)
		c := shell(`(setsid sh -c "echo ready; exec sleep 1000" &); exec sleep 1000 >/dev/null`, marked.w)
		c.Serves = true
		start(t, server, c)
		marked.line()
		ranks := newTestScope(t, s)
		start(t, ranks, shell(`(env -i setsid sh -c "trap '' TERM; echo ready; exec sleep 1000" &); exit 0`, hidden.w))
		hidden.line()
		must(t, ranks.Close())
		hidden.end()
		if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(marked), Events: unix.POLLIN}}, 0); err != nil || n != 0 {
			t.Error("what a server has started has ended with another scope")
		}
		must(t, server.Close())
		marked.end()
	})
}
