package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/guardian"
	"github.com/golaunch/golaunch/internal/process/proc/internal/record"
)

// everything is a script that starts all strays that can be found once the supervisor is dead; SELF
// stands for this program.
const everything = `
	setsid sh -c "trap '' TERM; echo ready; sleep 1000" &
	(setsid sh -c "trap '' TERM; sleep 1000 & echo ready; sleep 1000" &)
	env -i sh -c "trap '' TERM; echo ready; sleep 1000" &
	sh -c 'echo ready; kill -STOP $$' &
	env -i PROC_TEST_LEAVE_GROUP=1 SELF &
	sleep 1000`

func startEverything(t *testing.T, p plan, more ...*os.File) (*killable, *output) {
	t.Helper()
	out := newOutput(t)
	self, err := os.Executable()
	must(t, err)
	p.Script = strings.ReplaceAll(everything, "SELF", self)
	h := startHelper(t, p, out, more...)
	for range 5 {
		out.line()
	}
	return h, out
}

func TestSupervisorKilled(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		h, out := startEverything(t, p)
		h.kill(t)
		out.end()
		h.stderr.end()
		if _, err := os.Stat(h.home); h.home != "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup %s is left: %v", h.home, err)
		}
	})
}

// answer returns when the guardian has read all its messages. It gives the guardian the write end
// of a pipe, and waits until the guardian has closed that end.
func answer(s *Supervisor) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = errors.Join(s.guard.Ready(), r.SetReadDeadline(time.Now().Add(patience)), s.Hold(w), w.Close(), s.Hold())
	if err != nil {
		return err
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("a file that was held and released reads %v, want EOF", err)
	}
	return nil
}

func TestGuardianIgnoresSignals(t *testing.T) {
	s := newSupervisor(t, Options{})
	must(t, answer(s))
	before := s.guard.PID()
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGPIPE} {
		must(t, unix.Kill(before, sig))
	}
	must(t, answer(s))
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", before))
	if err != nil || string(name) != guardian.Name+"\n" {
		t.Errorf("the guardian is called %q, %v", name, err)
	}
}

func TestGuardianReplaced(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		h, out := startEverything(t, p)
		must(t, unix.Kill(h.guardian, unix.SIGKILL))
		warning, err := h.words.ReadString('\n')
		if err != nil || !strings.Contains(warning, "takes over") {
			t.Fatalf("no word of a new guardian: %q, %v", warning, err)
		}
		h.kill(t)
		out.end()
		h.stderr.end()
		if _, err := os.Stat(h.home); h.home != "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup %s is left: %v", h.home, err)
		}
	})
}

// When the agent and the guardian are dead, PR_SET_PDEATHSIG still ends the ranks.
func TestSupervisorAndGuardianKilled(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		out := newOutput(t)
		p.Script = "echo ready; exec sleep 1000"
		killBoth(t, p, out)
		out.end()
	})
}

// killBoth kills a supervisor and its guardian so that neither can act on the other's death.
func killBoth(t *testing.T, p plan, out *output, more ...*os.File) *killable {
	t.Helper()
	h := startHelper(t, p, out, more...)
	out.line()
	must(t, unix.Kill(h.cmd.Process.Pid, unix.SIGSTOP))
	must(t, unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)) // all of its threads have stopped
	must(t, unix.Kill(h.guardian, unix.SIGKILL))
	h.end.Await()
	h.kill(t)
	t.Cleanup(func() { must(t, record.EndStale(time.Now().Add(patience))) })
	return h
}

// A stopped guardian would not act. It is replaced while its supervisor lives.
func TestStoppedGuardianIsReplaced(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		h, out := startEverything(t, p)
		must(t, unix.Kill(h.guardian, unix.SIGSTOP))
		warning, err := h.words.ReadString('\n')
		if err != nil || !strings.Contains(warning, "was stopped by signal 19; pid") || !strings.Contains(warning, "takes over") {
			t.Fatalf("no word of a new guardian: %q, %v", warning, err)
		}
		h.end.Await()
		h.kill(t)
		out.end()
		h.stderr.end()
	})
}

func TestLease(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		p.Lease = 2 * time.Second
		h, out := startEverything(t, p)
		must(t, unix.Kill(h.cmd.Process.Pid, unix.SIGSTOP))
		out.end()
		must(t, unix.Kill(h.guardian, 0))
	})
}

func TestStartAfterLease(t *testing.T) {
	s := newSupervisor(t, Options{})
	s.Renew(time.Nanosecond)
	var fail *StartError
	if _, err := newTestScope(t, s).Start(shell("sleep 1000", nil)); !errors.As(err, &fail) || fail.Exit.Code != 125 {
		t.Errorf("start after the lease: %v, want code 125", err)
	}
	s.Renew(time.Hour)
	start(t, newTestScope(t, s), shell("sleep 1000", nil))
	s.Renew(0)
}
