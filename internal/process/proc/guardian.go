package proc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// guardSocket is the descriptor at which a guardian finds its parent.
const guardSocket = helper.First

// maxHeld bounds the files that a guardian holds.
const maxHeld = 128

// A program that has this package in it is also its own guardian, where it is started as one. This happens in init, before main and before
// the initialization of what imports this package, so that the guardian stays small.
func init() {
	if helper.Is(guardName) {
		newGuardian().run()
		os.Exit(0)
	}
}

// guardian is what the small process knows. It runs on one goroutine.
type guardian struct {
	timer int
	// end is when the lease is over, by CLOCK_BOOTTIME; 0 without one.
	end     time.Duration
	held    []int
	starved []byte
	// oom knows of the kills for want of memory until the lease was renewed last. One since then
	// was that of the parent, if it is dead.
	oom *oomCounter
	// home is the cgroup of all, or empty, record the file of a [record], or empty, and since before all.
	home, record string
	since        Epoch
	trails       map[string]trail
	// adopter is the process that orphans go to, and session the one they are not in; 0 when it is not a subreaper.
	adopter, session int
}

func newGuardian() *guardian {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	unix.CloseOnExec(guardSocket)
	name, _ := unix.BytePtrFromString(guardName)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0); err != nil {
		fatal(err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		fatal(err)
	}
	return &guardian{timer: timer, trails: map[string]trail{}, oom: newOOMCounter("")}
}

// fatal ends a guardian that cannot work; its parent sees that.
func fatal(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
	os.Exit(1)
}

// run returns when the parent is dead and all that it started as well. Messages come before the lease: one of them may renew it.
func (g *guardian) run() {
	fds := []unix.PollFd{{Fd: guardSocket, Events: unix.POLLIN}, {Fd: int32(g.timer), Events: unix.POLLIN}}
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
	// oversleep is how much later than the end of the lease a guardian wakes that was paused, with its machine perhaps.
	oversleep = 250 * time.Millisecond
	// reprieval is how long its parent then has to renew the lease.
	reprieval = 2 * time.Second
)

func (g *guardian) overslept() bool { return g.end != 0 && BootTime()-g.end > oversleep }

// reprieve says whether the lease is renewed after all: a coordinator that was paused too has given nothing away. Until that is known
// no rank runs, for others may run in their place. Without a cgroup that cannot be had.
func (g *guardian) reprieve() bool {
	if g.home == "" || setFrozen(g.home, true) != nil {
		return false
	}
	limit := BootTime() + reprieval
	fds := []unix.PollFd{{Fd: guardSocket, Events: unix.POLLIN}}
	for alive := true; alive && g.end != 0 && BootTime() > g.end; {
		left := limit - BootTime()
		if n, err := unix.Poll(fds, int(left.Milliseconds())); left <= 0 || n == 0 || err != nil && err != unix.EINTR {
			break
		}
		alive = fds[0].Revents == 0 || g.receive()
	}
	renewed := g.end == 0 || BootTime() < g.end
	if !renewed {
		g.expire()
	}
	if err := setFrozen(g.home, false); err != nil {
		fatal(err)
	}
	return true
}

// receive acts on one message, and reports false when there is no parent any more.
func (g *guardian) receive() bool {
	var text [4096]byte
	var rights [16 + 4*maxHeld]byte
	n, nr, _, _, err := unix.Recvmsg(guardSocket, text[:], rights[:], unix.MSG_CMSG_CLOEXEC)
	if err == unix.EINTR {
		return true
	}
	if err != nil || n == 0 {
		return false
	}
	g.obey(strings.Split(string(text[:n]), "\x00"), rights[:nr])
	return true
}

func (g *guardian) obey(words []string, rights []byte) {
	number := func(i int) int { n, _ := strconv.Atoi(words[i]); return n }
	switch words[0] {
	case "origin":
		g.home, g.record = words[1], words[2]
		_ = json.Unmarshal([]byte(words[3]), &g.since) // tellOrigin's
	case "adopter":
		g.adopter, g.session = number(1), number(2)
	case "scope":
		g.trails[words[1]] = trail{marker: words[1], cgroup: words[2], since: g.since}
	case "session":
		t := g.trails[words[1]]
		t.sessions = append(t.sessions, number(2))
		g.trails[words[1]] = t
	case "drop":
		delete(g.trails, words[1])
	case "lease":
		g.lease(time.Duration(number(1)))
	case "hold":
		g.hold(rights, words[1])
	}
}

// lease sets the time of CLOCK_BOOTTIME when the lease ends; 0 is never. A time that has passed comes at once.
func (g *guardian) lease(end time.Duration) {
	g.end = end
	g.oom.seen = g.oom.read()
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(end.Nanoseconds())}
	if err := unix.TimerfdSettime(g.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		fatal(err)
	}
}

// hold keeps the files in a message open, if any, instead of the former ones.
func (g *guardian) hold(rights []byte, starved string) {
	closeAll(g.held)
	g.held = nil
	g.starved, _ = hex.DecodeString(starved) // tellHeld's
	if messages, err := unix.ParseSocketControlMessage(rights); err == nil && len(messages) == 1 {
		g.held, _ = unix.ParseUnixRights(&messages[0]) // of one kind only
	}
}

// expire kills the ranks of a parent that did not renew its lease, and stays for what the parent may start when it goes on.
func (g *guardian) expire() {
	var ticks [8]byte
	if _, err := unix.Read(g.timer, ticks[:]); err != nil {
		return
	}
	var orphans *unmarked
	if g.home == "" && g.adopter != 0 {
		orphans = &unmarked{match: g.orphan, since: g.since}
	}
	g.kill(orphans)
}

// finish ends everything, proves that to whom it may concern, and leaves nothing for the next supervisor to do.
func (g *guardian) finish() {
	proof := g.starved
	if !g.oom.claim() {
		sum := sha256.Sum256(proof)
		proof = sum[:]
	}
	if !g.kill(nil) {
		return
	}
	testify(g.held, proof)
	if g.home != "" {
		if err := removeGroup(g.home); err != nil {
			fatal(err)
		}
	}
	if g.record != "" {
		if err := gone(os.Remove(g.record)); err != nil {
			fatal(err)
		}
	}
}

// kill says whether all are dead. It reports only afterwards: standard error may be a pipe that nobody reads.
func (g *guardian) kill(also *unmarked) bool {
	err := hunt(slices.Collect(maps.Values(g.trails)), also, time.Now().Add(killLimit))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
	}
	return err == nil
}

func (g *guardian) orphan(st stat) bool {
	if st.ppid != g.adopter || st.session == g.session || st.pid == os.Getpid() {
		return false
	}
	for _, t := range g.trails {
		if slices.Contains(t.sessions, st.pid) {
			return false
		}
	}
	return true
}
