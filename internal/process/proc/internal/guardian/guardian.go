// Package guardian is a small helper process that kills the ranks of a process that has died.
//
// The guardian shares a socket with this process, its owner. The end of the socket tells the
// guardian that its owner has died. Package guard is the owner's side.
//
// Go initializes packages in the order of their import paths, each after its own imports. The
// guardian begins in its init function: it starts fast and stays small because it imports no package
// that has to wait for others, such as net, encoding/json or path/filepath.
package guardian

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

const (
	// Name is the guardian's argv[0] and thread name.
	Name = "rankguard"
	// socket is the descriptor that connects a guardian to its owner.
	socket = helper.First
	// MaxHeld bounds the files that a guardian holds.
	MaxHeld = 128
	// MaxMessage bounds a message, in bytes.
	MaxMessage = 32 << 10
)

// A program that contains this package becomes a guardian if it was started as one, see
// [helper.Is]. init runs before main, and before the packages that import this one are initialized,
// so that a guardian starts fast and stays small.
func init() {
	if helper.Is(Name) {
		newGuardian().run()
		os.Exit(0)
	}
}

// guardian runs on one goroutine.
type guardian struct {
	timer int
	// end is when the lease ends, by CLOCK_BOOTTIME; 0 without one.
	end  time.Duration
	held []int
	// proof proves that all ranks are dead. starved proves that too, and that the kernel killed the
	// owner for want of memory.
	starved, proof []byte
	// oom counts the kills for want of memory, and kills is the count when the owner last renewed
	// the lease. If the owner is dead and there is a later kill, the kernel killed the owner.
	oom   *cgroup.OOMCounter
	kills uint64
	// home is the cgroup of all ranks, or empty, and record the path of the owner's record, or
	// empty.
	home, record string
	// since is an epoch before the start of any rank.
	since  procfs.Epoch
	trails map[string]sweep.Trail
	// adopter is the process that adopts orphans, or 0 if the owner is no subreaper. session is the
	// owner's session, which has no orphans.
	adopter, session int
}

func newGuardian() *guardian {
	signal.Ignore(helper.Signals()...)
	unix.CloseOnExec(socket)
	// The kernel then does not kill the guardian for want of memory, even if it kills the whole
	// cgroup (memory.oom.group). This takes CAP_SYS_RESOURCE; without it, larger processes are
	// victims first.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	if err := helper.Rename(Name); err != nil {
		fatal(err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		fatal(err)
	}
	return &guardian{timer: timer, trails: map[string]sweep.Trail{}, oom: cgroup.NewOOMCounter("")}
}

// fatal ends a guardian that cannot work. Its owner then starts another.
func fatal(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
	os.Exit(1)
}

// run returns when the owner and everything that it started are dead. It obeys waiting messages
// before it looks at the lease, because a message may renew the lease.
func (g *guardian) run() {
	fds := []unix.PollFd{{Fd: socket, Events: unix.POLLIN}, {Fd: int32(g.timer), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fatal(err)
		case fds[0].Revents != 0:
			if !g.receive() {
				g.finish()
				return
			}
		case fds[1].Revents != 0:
			if !g.overslept() || !g.reprieve() {
				g.expire()
			}
		}
	}
}

const (
	// oversleep is how late after the end of the lease a guardian may wake. If it wakes later, it
	// was paused, perhaps with its machine.
	oversleep = 250 * time.Millisecond
	// reprieveTime is how long the owner of a paused guardian has to renew the lease.
	reprieveTime = 2 * time.Second
)

func (g *guardian) overslept() bool { return g.end != 0 && procfs.BootTime()-g.end > oversleep }

// reprieve freezes the ranks and waits for a message that renews the lease, because a coordinator
// that was paused too has not replaced any rank. It returns false without a cgroup: ranks that
// cannot be frozen might run beside the ranks that have replaced them.
func (g *guardian) reprieve() bool {
	if g.home == "" || cgroup.SetFrozen(g.home, true) != nil {
		return false
	}
	limit := procfs.BootTime() + reprieveTime
	fds := []unix.PollFd{{Fd: socket, Events: unix.POLLIN}}
	for alive := true; alive && g.end != 0 && procfs.BootTime() > g.end; {
		left := limit - procfs.BootTime()
		if n, err := unix.Poll(fds, int(left.Milliseconds())); left <= 0 || n == 0 || err != nil && err != unix.EINTR {
			break
		}
		alive = fds[0].Revents == 0 || g.receive()
	}
	renewed := g.end == 0 || procfs.BootTime() < g.end
	if !renewed {
		g.expire()
	}
	if err := cgroup.SetFrozen(g.home, false); err != nil {
		fatal(err)
	}
	return true
}

// receive carries out one message, and returns false if the owner is dead.
func (g *guardian) receive() bool {
	body, files, err := frame.Receive(frame.FD(socket), MaxMessage, MaxHeld)
	if err != nil {
		return false
	}
	g.obey(frame.Split(body), files)
	return true
}

// obey carries out a message from the guard.
func (g *guardian) obey(words []string, files []int) {
	number := func(i int) int { n, _ := strconv.Atoi(words[i]); return n }
	switch words[0] {
	case "origin":
		g.home, g.record = words[1], words[2]
		g.since = procfs.Epoch{
			At: time.Duration(number(3)), Last: number(4), Forks: uint64(number(5)), Threads: uint64(number(6)),
		}
	case "adopter":
		g.adopter, g.session = number(1), number(2)
	case "scope":
		g.trails[words[1]] = sweep.Trail{Marker: words[1], Cgroup: words[2], Since: g.since}
	case "session":
		t := g.trails[words[1]]
		t.Sessions = append(t.Sessions, number(2))
		g.trails[words[1]] = t
	case "drop":
		delete(g.trails, words[1])
	case "lease":
		g.lease(time.Duration(number(1)))
		g.kills, _ = strconv.ParseUint(words[2], 10, 64) // sendLease has written it
	case "hold":
		frame.Close(g.held)
		g.held = files
		g.starved, _ = hex.DecodeString(words[1]) // sendHeld has encoded both texts
		g.proof, _ = hex.DecodeString(words[2])
	}
}

// lease sets the end of the lease, by CLOCK_BOOTTIME; 0 means never. The timer fires at once if the
// end has passed.
func (g *guardian) lease(end time.Duration) {
	g.end = end
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(end.Nanoseconds())}
	if err := unix.TimerfdSettime(g.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		fatal(err)
	}
}

// expire kills the ranks of an owner that did not renew its lease. The guardian stays, because the
// owner may start ranks when it continues.
func (g *guardian) expire() {
	var ticks [8]byte
	if _, err := unix.Read(g.timer, ticks[:]); err != nil {
		return
	}
	var orphans *sweep.Unmarked
	if g.home == "" && g.adopter != 0 {
		orphans = &sweep.Unmarked{Match: g.isOrphan, Since: g.since}
	}
	g.kill(orphans)
}

// finish kills everything, ends the held sockets with the proof that no rank lives, and leaves
// nothing for the next supervisor to clean up.
func (g *guardian) finish() {
	proof := g.proof
	if g.oom.Kills() > g.kills {
		proof = g.starved
	}
	if !g.kill(nil) {
		return
	}
	Prove(g.held, proof)
	if g.home != "" {
		if err := cgroup.Remove(g.home); err != nil {
			fatal(err)
		}
	}
	if g.record != "" {
		if err := cgroup.Gone(os.Remove(g.record)); err != nil {
			fatal(err)
		}
	}
}

// kill kills all ranks and reports whether they are dead. It writes to standard error last, because
// standard error may be a pipe without a reader.
func (g *guardian) kill(also *sweep.Unmarked) bool {
	err := sweep.KillAll(slices.Collect(maps.Values(g.trails)), also, time.Now().Add(procfs.KillLimit))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
	}
	return err == nil
}

func (g *guardian) isOrphan(st procfs.Stat) bool {
	if st.PPID != g.adopter || st.Session == g.session || st.PID == os.Getpid() {
		return false
	}
	for _, t := range g.trails {
		if slices.Contains(t.Sessions, st.PID) {
			return false
		}
	}
	return true
}
