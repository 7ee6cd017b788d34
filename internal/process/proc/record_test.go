package proc

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/record"
)

// left is a script that starts processes that no death signal reaches.
const left = `
	setsid sh -c 'echo ready; sleep 1000' &
	sh -c 'sleep 1000' &
	env -i sleep 1000 &
	sleep 1000`

func recordsLeft(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(record.Base, "golaunch-*", ".ranks", "*"))
	must(t, err)
	return names
}

// If a supervisor and its guardian were killed at once, the next supervisor ends the processes that
// they left before it starts anything.
func TestNextSupervisorEndsWhatIsLeft(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		p.Script = left
		before := recordsLeft(t)
		out := newOutput(t)
		h := killBoth(t, p, out)
		during := recordsLeft(t)
		if len(during) != len(before)+1 {
			t.Fatalf("records: %q, and before the supervisor %q", during, before)
		}
		endedByNext(t, h, out)
		after := recordsLeft(t)
		for _, r := range during {
			if !slices.Contains(before, r) && slices.Contains(after, r) {
				t.Errorf("record %s is left", r)
			}
		}
	})
}

// A stopped guardian does as little as a killed one.
func TestNextSupervisorActsForAStoppedGuardian(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		p.Script = left
		out := newOutput(t)
		h := startHelper(t, p, out)
		out.line()
		must(t, unix.Kill(h.cmd.Process.Pid, unix.SIGSTOP))
		must(t, unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
		must(t, unix.Kill(h.guardian, unix.SIGSTOP))
		t.Cleanup(func() { must(t, unix.Kill(h.guardian, unix.SIGCONT)) })
		h.kill(t)
		endedByNext(t, h, out)
	})
}

func endedByNext(t *testing.T, h *killable, out *output) {
	t.Helper()
	newSupervisor(t, Options{})
	// The kernel may close the files of a dead process a moment after its death; a living process
	// lives for 1,000 s.
	if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(out), Events: unix.POLLIN}}, int(patience.Milliseconds())); err != nil || n != 1 {
		t.Errorf("a process of an earlier supervisor lives when there is a new one: poll gives %d, %v", n, err)
	}
	out.end()
	if _, err := os.Stat(h.home); h.home != "" && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup %s is left: %v", h.home, err)
	}
}

// The processes of an ended container are invisible. Its cgroup is visible, if that was not the
// container's own.
func TestNextSupervisorRemovesTheCgroupOfAContainer(t *testing.T) {
	needCgroup(t)
	home := cgroup.MakeHome()
	dir, err := record.OpenDir()
	must(t, err)
	defer dir.Close()
	text, err := json.Marshal(record.Record{Marker: "RANKGUARD_NONE_", Cgroup: home.Dir, PIDs: "pid:[1]"})
	must(t, err)
	must(t, dir.WriteFile("1-CONTAINER", text, 0o600))
	must(t, record.EndStale(time.Now().Add(patience)))
	for _, path := range []string{home.Dir, filepath.Join(dir.Name(), "1-CONTAINER")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// A supervisor does not end processes that another supervisor guards.
func TestNextSupervisorSparesTheLiving(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		p.Script = left
		out := newOutput(t)
		h := startHelper(t, p, out)
		out.line()
		newSupervisor(t, Options{})
		out.w.Close()
		if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(out), Events: unix.POLLIN}}, 0); err != nil || n != 0 {
			t.Errorf("its processes are gone: poll gives %d, %v", n, err)
		}
		h.kill(t)
		out.end()
	})
}

// Supervisors that come and go at the same time never take the record of a living supervisor for
// the record of a dead one.
func TestRecordsOfSupervisorsThatStartTogether(t *testing.T) {
	before := len(recordsLeft(t))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				living := filepath.Join(t.TempDir(), "cgroup") // no other supervisor may end its processes
				if err := os.Mkdir(living, 0o700); err != nil {
					t.Error(err)
				}
				r := record.New(record.Record{Marker: "RANKGUARD_NONE_", Cgroup: living})
				err := record.EndStale(time.Now().Add(patience))
				if r == nil || err != nil {
					t.Errorf("record %v, %v", r, err)
					return
				}
				for _, path := range []string{r.Path, living} {
					if _, err := os.Stat(path); err != nil {
						t.Error(err)
					}
				}
				if err := r.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := recordsLeft(t); len(got) != before {
		t.Errorf("records are left: %q", got)
	}
}
