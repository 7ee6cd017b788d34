package proc

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trainer is a rank that saves on TERM. The same signal ends its worker.
const trainer = `trap 'sleep 0.2; echo saved; exit' TERM
sh -c 'trap "echo worker told; exit" TERM; echo ready; while :; do sleep 0.02; done' & wait; while :; do sleep 0.02; done`

// TestStopSignalsHandlers: a stop reaches the process that can act on it, and the other processes
// once that process has ended.
func TestStopSignalsHandlers(t *testing.T) {
	for _, c := range []struct {
		name, script string
		sig          syscall.Signal
		want         string
	}{
		{"the leader", trainer, unix.SIGTERM, "saved\nworker told\n"},
		{"below a shell", "sh -c \"$TRAINER\"; true", unix.SIGTERM, "saved\nworker told\n"},
		{"below two shells", "sh -c 'sh -c \"$TRAINER\"; true'; true", unix.SIGTERM, "saved\nworker told\n"},
		{"in a session of its own", "setsid sh -c \"$TRAINER\"; true", unix.SIGTERM, "saved\n"},
		{"by another signal", strings.ReplaceAll(trainer, "saved; exit' TERM", "saved; exit' USR1"), unix.SIGUSR1, "saved\nworker told\n"},
		{"by one that it does not know", trainer, unix.SIGUSR1, "saved\nworker told\n"},
		{"all, as from a terminal", `trap "echo leader; exit" INT; sh -c 'trap "echo child; exit" INT; echo ready; while :; do sleep 0.02; done'`, unix.SIGINT, "child\nleader\n"},
		{"all, as from a terminal, which the worker ignores", strings.ReplaceAll(trainer, "saved; exit' TERM", "saved; exit' INT"), unix.SIGINT, "saved\nworker told\n"},
		{"all, where nothing knows it", "sleep 1000 & echo ready; wait", unix.SIGTERM, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ways(t, func(t *testing.T, opts Options) {
				out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
				command := shell(c.script, out.w)
				command.Env = append(command.Env, "TRAINER="+trainer)
				start(t, sc, command)
				out.line()
				begin := time.Now()
				must(t, sc.Stop(c.sig, false, patience))
				if got := out.end(); got != c.want {
					t.Errorf("it wrote %q, want %q", got, c.want)
				}
				if took := time.Since(begin); took > patience/2 {
					t.Errorf("Stop took %v although all had ended", took)
				}
			})
		})
	}
}

// TestStopOfRanksWithTheSignal: ranks that already have the signal from another sender do not get
// it again.
func TestStopOfRanksWithTheSignal(t *testing.T) {
	out, sc := newOutput(t), newTestScope(t, newSupervisor(t, Options{}))
	script := strings.ReplaceAll(trainer, "saved; exit' TERM", "saved; exit' INT") + `; trap "echo told" TERM`
	p := start(t, sc, shell(script, out.w))
	out.line()
	must(t, unix.Kill(p.Pid(), unix.SIGINT))
	must(t, sc.Stop(unix.SIGINT, true, patience))
	if got := out.end(); got != "saved\nworker told\n" {
		t.Errorf("it wrote %q", got)
	}
}

// TestSignalSparesProcessesWithoutHandler: processes with a handler get the signal, and no other
// processes die of it.
func TestSignalSparesProcessesWithoutHandler(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
		start(t, sc, shell(`sh -c 'while :; do sleep 0.02; done' & trap "kill -0 $! && echo both live; kill $!; exit" USR1; echo ready; wait; echo it has died`, out.w))
		out.line()
		sc.Signal(unix.SIGUSR1)
		if got := out.end(); got != "both live\n" {
			t.Errorf("it wrote %q", got)
		}
	})
}

// TestWhatIsLeft: leftover processes may run for a while, and are then asked to end, in any
// session.
func TestWhatIsLeft(t *testing.T) {
	const upload = `setsid sh -c 'trap "echo told; exit" TERM; echo ready; while [ ! -e "$GATE" ]; do sleep 0.02; done; echo uploaded' & exit 0`
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		for gate, want := range map[string]string{"/": "uploaded\n", "/none": "told\n"} {
			out, sc := newOutput(t), newTestScope(t, s)
			command := shell(upload, out.w)
			command.Env = append(command.Env, "GATE="+gate)
			p := start(t, sc, command)
			out.line()
			<-p.Done()
			limit := time.Duration(0)
			if want == "uploaded\n" {
				limit = patience
			}
			left, err := sc.Linger(limit)
			must(t, err)
			if (len(left) > 0) != (limit == 0) || limit == 0 && !strings.HasPrefix(left[0], "sh (pid ") {
				t.Errorf("%q is left after %v", left, limit)
			}
			must(t, sc.Rest(patience))
			if got := out.end(); got != want {
				t.Errorf("it wrote %q, want %q", got, want)
			}
			must(t, sc.Close())
		}
	})
}
