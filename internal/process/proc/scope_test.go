package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

func TestExit(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		sc := newTestScope(t, newSupervisor(t, opts))
		for script, want := range map[string]report.Exit{
			"exit 0":        {},
			"exit 7":        {Code: 7},
			"exit 255":      {Code: 255},
			"kill -SEGV $$": {Code: 139, Signal: 11},
			"kill -KILL $$": {Code: 137, Signal: 9},
		} {
			if got := start(t, sc, shell(script, nil)).Exit(); got != want {
				t.Errorf("%s: exit %+v, want %+v", script, got, want)
			}
		}
	})
}

func TestStatusTakenByAnother(t *testing.T) {
	sc := newTestScope(t, newSupervisor(t, Options{}))
	out := newOutput(t)
	p := start(t, sc, shell("echo ready; kill -STOP $$", out.w))
	out.line()
	must(t, unix.Kill(p.Pid(), unix.SIGKILL))
	<-p.Done()
	sc.sup.table.reap(p.Pid())
	if got := exitOf(p.Pid()); got.Code != codeUnknown {
		t.Errorf("exit %+v of a process that another one reaped, want code %d", got, codeUnknown)
	}
}

func TestEnvironment(t *testing.T) {
	sc := newTestScope(t, newSupervisor(t, Options{}))
	out := newOutput(t)
	c := shell("env; pwd; cat; ps -o sid= -p $$", out.w)
	c.Env, c.Dir = append(c.Env, "A=b c"), "/usr"
	p := start(t, sc, c)
	text := out.end()
	for _, want := range []string{"A=b c\n", sc.Env() + "\n", "/usr\n", strconv.Itoa(p.Pid()) + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in what the rank says:\n%s", want, text)
		}
	}
}

func TestCPUs(t *testing.T) {
	sc := newTestScope(t, newSupervisor(t, Options{}))
	var all unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	allowed := func(cpus []int) string {
		out := newOutput(t)
		c := shell("grep Cpus_allowed_list /proc/self/status", out.w)
		c.CPUs = cpus
		start(t, sc, c)
		return strings.TrimSpace(strings.TrimPrefix(out.end(), "Cpus_allowed_list:"))
	}
	before := allowed(nil)
	last := 0
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			last = cpu
		}
	}
	for range 8 {
		if got := allowed([]int{last}); got != strconv.Itoa(last) {
			t.Fatalf("a rank bound to CPU %d runs on %s", last, got)
		}
		if got := allowed(nil); got != before {
			t.Fatalf("a rank after a bound one runs on %s, want %s", got, before)
		}
	}
	c := shell("exit 0", nil)
	c.CPUs = []int{1023}
	if _, err := sc.Start(c); err == nil || !strings.Contains(err.Error(), "bind to CPUs [1023]") {
		t.Errorf("bound to a CPU that is not there: %v", err)
	}
}

// TestMemory reads the policy of a rank's memory from numa_maps(5), which names the policy of each
// mapping.
func TestMemory(t *testing.T) {
	sc := newTestScope(t, newSupervisor(t, Options{}))
	policy := func(node *int) string {
		out := newOutput(t)
		c := shell("cat /proc/self/numa_maps", out.w)
		c.Memory = node
		start(t, sc, c)
		maps := strings.Split(strings.TrimSpace(out.end()), "\n")
		var found []string
		for _, line := range maps {
			if policy := strings.Fields(line)[1]; !slices.Contains(found, policy) {
				found = append(found, policy)
			}
		}
		return strings.Join(found, " ")
	}
	before := policy(nil)
	for range 8 {
		if got := policy(new(0)); got != "prefer:0" {
			t.Fatalf("the memory policy of a rank that prefers node 0 is %q", got)
		}
		if got := policy(nil); got != before {
			t.Fatalf("the memory policy of a rank after it is %q, want %q", got, before)
		}
	}
	for _, node := range []int{-1, 1022, 1024} {
		c := shell("exit 0", nil)
		c.Memory = &node
		if _, err := sc.Start(c); err == nil || !strings.Contains(err.Error(), fmt.Sprint("memory of NUMA node ", node)) {
			t.Errorf("started with the memory of node %d, which is not there: %v", node, err)
		}
	}
	if got := policy(nil); got != before {
		t.Errorf("the memory policy of a rank after these is %q, want %q", got, before)
	}
}

// strays are scripts whose processes do not end by themselves, each with its own way to stay.
var strays = map[string]string{
	"plain":          `sleep 1000 & echo ready; wait`,
	"ignores TERM":   `trap "" TERM; sleep 1000 & echo ready; sleep 1000`,
	"stopped":        `sleep 1000 & echo ready; kill -STOP $$; sleep 1000`,
	"left session":   `setsid sh -c "trap '' TERM; echo ready; sleep 1000"`,
	"daemon":         `(setsid sh -c "trap '' TERM; sleep 1000 & echo ready; sleep 1000" &); exit 0`,
	"no environment": `env -i sh -c "trap '' TERM; sleep 1000 & echo ready; sleep 1000"`,
}

func TestNoStrayOutlivesStop(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		for name, script := range strays {
			out, sc := newOutput(t), newTestScope(t, s)
			p := start(t, sc, shell(script, out.w))
			out.line()
			must(t, sc.Stop(unix.SIGTERM, false, 50*time.Millisecond))
			select {
			case <-p.Done():
			default:
				t.Errorf("%s: Stop returned before the process ended", name)
			}
			if n, err := unix.Poll([]unix.PollFd{{Fd: endFD(out), Events: unix.POLLIN}}, 0); err != nil || n != 1 {
				t.Errorf("%s: a process lives when Stop returns", name)
			}
			out.end()
			must(t, sc.Close())
		}
	})
}

// endFD closes the write end and returns the read end, which is readable once no other writer
// lives.
func endFD(o *output) int32 {
	o.w.Close()
	var number int32
	conn, err := o.f.SyscallConn()
	must(o.t, err)
	must(o.t, conn.Control(func(fd uintptr) { number = int32(fd) }))
	return number
}

// If a daemon has left its session, its environment and its parent, only the process that adopted
// it can find it.
func TestHiddenDaemon(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
		start(t, sc, shell(`(env -i setsid sh -c "trap '' TERM; echo ready; exec sleep 1000" &); exit 0`, out.w))
		out.line()
		must(t, sc.Close())
		out.end()
	})
}

func TestStopGivesGroupsTheirGrace(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
		begin := time.Now()
		const save = `sh -c 'trap "sleep 0.3; echo saved; exit" TERM; echo ready; while :; do sleep 0.02; done' & wait`
		start(t, sc, shell(save, out.w))
		out.line()
		must(t, sc.Stop(unix.SIGTERM, false, patience))
		if got := out.end(); got != "saved\n" {
			t.Errorf("a child of a rank's shell could not end in order: it wrote %q", got)
		}
		if took := time.Since(begin); took > patience/2 {
			t.Errorf("Stop took %v although all had ended", took)
		}
	})
}

func TestStopWakesStopped(t *testing.T) {
	out, sc := newOutput(t), newTestScope(t, newSupervisor(t, Options{}))
	p := start(t, sc, shell(`trap "echo saved; exit 3" TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done`, out.w))
	out.line()
	must(t, unix.Waitid(unix.P_PID, p.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil))
	must(t, sc.Stop(unix.SIGTERM, false, patience))
	if got := out.end(); got != "saved\n" || p.Exit() != (report.Exit{Code: 3}) {
		t.Errorf("a stopped rank could not end in order: it wrote %q, exit %+v", got, p.Exit())
	}
}

func TestStopDoesNotWaitForDaemons(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
		begin := time.Now()
		start(t, sc, shell(strays["daemon"], out.w))
		out.line()
		must(t, sc.Stop(unix.SIGTERM, false, patience))
		if took := time.Since(begin); took > patience/2 {
			t.Errorf("Stop waited %v for a process that was never told to end", took)
		}
		out.end()
	})
}

func TestKillHurriesStop(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		out, sc := newOutput(t), newTestScope(t, newSupervisor(t, opts))
		p := start(t, sc, shell(`trap "echo term" TERM; echo ready; while :; do sleep 0.02; done`, out.w))
		out.line()
		stopped := make(chan error)
		go func() { stopped <- sc.Stop(unix.SIGTERM, false, time.Hour) }()
		out.line()
		must(t, sc.Kill())
		must(t, <-stopped)
		if got := p.Exit(); got != (report.Exit{Code: 137, Signal: 9}) {
			t.Errorf("exit %+v, want SIGKILL", got)
		}
		var fail *StartError
		if _, err := sc.Start(shell("exit 0", nil)); !errors.As(err, &fail) || fail.Exit.Code != 125 {
			t.Errorf("start in a scope that has ended: %v, want code 125", err)
		}
		sc.Signal(unix.SIGTERM)
		must(t, sc.Close())
		must(t, sc.Close())
	})
}

func TestSignalReachesGroup(t *testing.T) {
	out, sc := newOutput(t), newTestScope(t, newSupervisor(t, Options{}))
	start(t, sc, shell(`trap : USR1; sh -c 'trap "echo child" USR1; echo ready; while :; do sleep 0.02; done'`, out.w))
	out.line()
	sc.Signal(unix.SIGUSR1)
	if got := out.line(); got != "child" {
		t.Errorf("got %q", got)
	}
}

func TestRanksOccupyNoThreads(t *testing.T) {
	const ranks = 100
	sc := newTestScope(t, newSupervisor(t, Options{}))
	for range ranks {
		start(t, sc, Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}})
	}
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	if len(threads) > ranks/2 {
		t.Errorf("%d threads wait for %d ranks", len(threads), ranks)
	}
}

func TestForeignChildrenKeepTheirStatus(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s := newSupervisor(t, opts)
		sc := newTestScope(t, s)
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if _, err := sc.Start(shell("exit 1", nil)); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				cmd := exec.Command("sh", "-c", "exit 3")
				var exit *exec.ExitError
				if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
					t.Errorf("a child of the program itself: %v, want exit status 3", err)
				}
			})
			wg.Go(s.reapOrphans)
		}
		wg.Wait()
	})
}

func TestOrphansAreReaped(t *testing.T) {
	sc := newTestScope(t, newSupervisor(t, Options{Subreaper: true}))
	out, in := newOutput(t), newOutput(t)
	c := shell(`exec 3<&0; (setsid sh -c 'echo $$; read line <&3' &)`, out.w)
	c.Stdin = in.f
	<-start(t, sc, c).Done()
	orphan, err := strconv.Atoi(out.line())
	must(t, err)
	fd, err := unix.PidfdOpen(orphan, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, in.w.Close())
	// A pidfd says POLLIN when the process is a zombie, and POLLHUP when it is reaped (Linux 6.9
	// and later).
	fds := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(fds, int(patience.Milliseconds())); n != 1 || fds[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("orphan %d is not reaped: poll gives %d, %v, events %#x", orphan, n, err, fds[0].Revents)
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		s, err := New(opts) // the runtime opens files of its own, once
		must(t, err)
		must(t, s.Close())
		before := descriptorsOpen(t)
		s, err = New(opts)
		must(t, err)
		home := s.home
		for range 5 {
			sc := newTestScope(t, s)
			for range 4 {
				start(t, sc, shell("sleep 1000", nil))
			}
			_, err := sc.Start(Command{Path: "/nonexistent", Args: []string{"x"}})
			if err == nil {
				t.Fatal("started a program that does not exist")
			}
		}
		r, w, err := os.Pipe()
		must(t, err)
		must(t, r.Close())
		must(t, s.Hold(w)) // the other end waits for no proof
		must(t, w.Close())
		must(t, s.Close())
		must(t, s.Close())
		if _, err := s.Scope("late"); err == nil {
			t.Error("a closed supervisor makes scopes")
		}
		if after := descriptorsOpen(t); len(after) != len(before) {
			t.Errorf("descriptors before: %v\nafter: %v", before, after)
		}
		if home == nil {
			return
		}
		if _, err := os.Stat(home.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup %s is left: %v", home.Dir, err)
		}
	})
}

// A rank of root may make cgroups, as a golaunch within a golaunch does.
func TestCgroupsOfRanksAreRemoved(t *testing.T) {
	needCgroup(t)
	s := newSupervisor(t, Options{})
	out, sc := newOutput(t), newTestScope(t, s)
	inner := filepath.Join(sc.group.dir, "a", "b")
	start(t, sc, shell("mkdir -p "+inner+" && echo $$ >"+inner+"/cgroup.procs && echo ready && sleep 1000", out.w))
	out.line()
	must(t, sc.Close())
	out.end()
	if _, err := os.Stat(sc.group.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup %s is left: %v", sc.group.dir, err)
	}
}

// Ranks start although a cleanup of empty cgroups has removed the supervisor's cgroup.
func TestRemovedHomeIsMadeAgain(t *testing.T) {
	needCgroup(t)
	s := newSupervisor(t, Options{})
	must(t, os.Remove(s.home.Dir))
	sc := newTestScope(t, s)
	if got := start(t, sc, shell("exit 7", nil)).Exit(); got != (report.Exit{Code: 7}) {
		t.Errorf("exit %+v, want code 7", got)
	}
}
