package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// TestResume checks that an agent adopts an attempt. The earlier agent had started only rank 1, and
// that rank has ended since.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	open := func() *keeper.Keeper {
		k, err := keeper.Open(dir, func(err error) { t.Errorf("warning: %v", err) })
		must(t, err)
		return k
	}
	pid := leaveOne(t, open(), startOf(0))
	k := open()
	t.Cleanup(func() { must(t, k.End()) })
	w := obeying(t, "echo late rank $RANK")
	w.starter.Keeper = k
	must(t, os.Mkdir(filepath.Join(w.jobs["test"].work.Output.Dir.Path(), "attempt-0"), 0o700))
	w.resume()
	w.quiet()
	u := w.jobs["test"].attempts[0]
	codes := map[int]int{}
	for _, ev := range u.reports {
		switch ev := ev.(type) {
		case job.Started:
			if len(ev.PIDs) != 2 || ev.PIDs[1] != pid || ev.PIDs[0] == pid {
				t.Errorf("the ranks are %v, and rank 1 is %d", ev.PIDs, pid)
			}
		case job.Exited:
			codes[ev.Rank] = ev.Exit.Code
			if ev.Lived < 0 || ev.At.IsZero() {
				t.Errorf("rank %d lived for %v, until %v", ev.Rank, ev.Lived, ev.At)
			}
		}
	}
	if _, stopped := u.reports[len(u.reports)-1].(job.Stopped); !stopped || len(u.reports) != 4 || codes[0] != 0 || codes[1] != 3 {
		t.Errorf("it reports %+v", u.reports)
	}
	for i, want := range []string{"late rank 0\n", "early rank\n"} {
		file := filepath.Join(u.job.work.Output.Dir.Path(), "attempt-0", []string{"rank-0", "rank-1"}[i]+".stdout.log")
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v, want %q", file, got, err, want)
		}
	}
}

// leaveOne runs an agent that dies when it has started rank 1 of an attempt.
func leaveOne(t *testing.T, k *keeper.Keeper, o job.Start) (pid int) {
	t.Helper()
	k.Renew(procfs.BootTime() + patience)
	sc, err := k.Scope("attempt", encode(t, keptAttempt{Job: "test", Order: o}))
	must(t, err)
	var ends, starts []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		defer w.Close()
		ends, starts = append(ends, r), append(starts, w)
	}
	c := proc.Command{Path: "sh", Args: []string{"sh", "-c", "echo early rank; exit 3"}, Env: os.Environ(), Stdout: starts[0], Stderr: starts[1]}
	p, err := sc.Start(c, encode(t, keptRank{Rank: 1}), ends...)
	must(t, err)
	<-p.Done()
	must(t, k.Leave())
	return p.Pid()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStopOfWhatCannotRun orders an agent to stop an attempt that never began, of a job that cannot
// run here. The agent must report the attempt as stopped.
func TestStopOfWhatCannotRun(t *testing.T) {
	w := obeying(t, "exit 0")
	w.jobs["test"].err = errors.New("no such directory")
	w.order(job.Stop{})
	w.quiet()
	if said := w.jobs["test"].attempts[0].reports; len(said) != 1 || said[0] != (job.Stopped{Node: "n1"}) {
		t.Errorf("it reports %+v", said)
	}
}

// TestStopBeforeTheRanksStart checks that a rank that must not start any more does not fail. The
// coordinator would take such a failure for the root cause.
func TestStopBeforeTheRanksStart(t *testing.T) {
	w := obeying(t, "exit 0")
	u := newAttempt(w.jobs["test"], startOf(0))
	sc, err := w.starter.Scope("stopped", keptAttempt{})
	must(t, err)
	must(t, sc.Stop(syscall.SIGTERM, false, 0))
	u.setUp()
	u.scope, u.halt.ordered = sc, true
	u.run()
	if len(u.reports) != 1 || u.reports[0] != (job.Stopped{Node: "n1"}) {
		t.Errorf("it reports %+v", u.reports)
	}
}
