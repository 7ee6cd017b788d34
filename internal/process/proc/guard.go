package proc

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
)

const (
	// guardName is the guardian's argv[0] and thread name, so that pkill golaunch and killall golaunch miss it.
	guardName = "rankguard"
	// sendLimit is how long a message may wait for a guardian that does not read; it is then replaced.
	sendLimit = 5 * time.Second
	// stoppedLimit is how long a guardian may be stopped while this process runs.
	stoppedLimit = time.Second
	// respawnDelay follows when two guardians in a row lived for less than this.
	respawnDelay = time.Second
)

// guard is the supervisor's side of the guardian: what a guardian must know, and the process that now knows it. Messages are
// records of words with NULs between them on a socket; the guardian sees its end when this process dies.
type guard struct {
	sup *Supervisor
	// starved proves that all are dead, as proof does, which is its hash, and that the kernel has
	// killed this process for want of memory.
	starved, proof [32]byte
	// lease is when the lease ends, in nanoseconds of CLOCK_BOOTTIME; 0 without one.
	lease atomic.Int64
	// first is closed when the first guardian was forked, or could not be.
	first   chan struct{}
	closing chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
	pid    int
	sock   int
	trails map[string]trail
	held   []int
}

// newGuard starts a guardian in the background.
func newGuard(s *Supervisor) *guard {
	g := &guard{
		sup: s, sock: -1, trails: map[string]trail{},
		first: make(chan struct{}), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	_, _ = rand.Read(g.starved[:]) // it does not fail
	g.proof = sha256.Sum256(g.starved[:])
	go g.run()
	return g
}

// ready waits until the first guardian was forked: what is sent from then on waits for it in the socket.
func (g *guard) ready() error {
	<-g.first
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// run keeps a guardian alive until close, and says so when one has replaced another.
func (g *guard) run() {
	defer close(g.ended)
	first := sync.OnceFunc(func() { close(g.first) })
	var former error
	for young := false; ; {
		born := time.Now()
		pid, err := g.launch()
		first()
		switch {
		case former != nil && err == nil:
			g.sup.opts.Warn(fmt.Errorf("%w; pid %d takes over", former, pid))
		case former != nil:
			g.sup.opts.Warn(fmt.Errorf("%w; then: %w", former, err))
		}
		if former = err; err == nil {
			former = g.outlive(pid)
		}
		if !g.bury() {
			return
		}
		again := young
		if young = time.Since(born) < respawnDelay; young && again {
			select {
			case <-time.After(respawnDelay):
			case <-g.closing:
			}
		}
	}
}

// outlive returns when a guardian, which is a child of this process, guards no more, and says why. One that stays stopped would never kill
// the ranks; it is killed.
func (g *guard) outlive(pid int) error {
	for {
		info, err := waitFor(pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
		if err != nil || info.code != cldStopped {
			return fmt.Errorf("the guardian (pid %d) ended with code %d", pid, exitOf(pid).Code)
		}
		if g.staysStopped(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
			exitOf(pid)
			return fmt.Errorf("the guardian (pid %d) was stopped by signal %d", pid, info.status)
		}
	}
}

// staysStopped gives a guardian a second to go on, in which this process ran: a scheduler that suspends a job stops one after the other, and
// another guardian would not be stopped.
func (g *guard) staysStopped(pid int) bool {
	for {
		begin := BootTime()
		select {
		case <-time.After(stoppedLimit):
		case <-g.closing:
			return true
		}
		info, err := waitFor(pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG)
		if err != nil || info.code != cldStopped {
			return false
		}
		if BootTime()-begin < 2*stoppedLimit {
			return true
		}
	}
}

// launch starts a guardian and tells it all there is to know.
func (g *guard) launch() (int, error) {
	ours, pid, err := g.fork()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err = err; err != nil {
		return 0, err
	}
	if g.sock >= 0 {
		_ = unix.Close(g.sock)
	}
	g.sock, g.pid = ours, pid
	if g.closed {
		g.kill()
		return pid, nil
	}
	g.tellOrigin()
	if g.sup.opts.Subreaper {
		g.tell(nil, "adopter", strconv.Itoa(os.Getpid()), strconv.Itoa(g.sup.session))
	}
	for _, t := range g.trails {
		g.tellTrail(t)
	}
	g.tellHeld()
	g.tell(nil, "lease", strconv.FormatInt(g.lease.Load(), 10))
	return pid, nil
}

// fork starts this same program again, whose init becomes the guardian. It has no death signal: it must outlive this process.
func (g *guard) fork() (ours, pid int, err error) {
	proof, err := helper.File()
	if err != nil {
		return -1, 0, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("make a socket for the guardian: %w", err)
	}
	limit := unix.NsecToTimeval(sendLimit.Nanoseconds())
	err = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	if err == nil {
		g.sup.forks.RLock()
		pid, err = syscall.ForkExec("/proc/self/exe", []string{guardName}, &syscall.ProcAttr{
			Dir:   "/",
			Env:   append([]string{"GOMAXPROCS=1"}, helper.Env()...),
			Files: []uintptr{g.sup.null.Fd(), g.sup.null.Fd(), os.Stderr.Fd(), proof.Fd(), uintptr(pair[1])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		if err == nil {
			g.sup.add(pid)
		}
		g.sup.forks.RUnlock()
	}
	_ = unix.Close(pair[1])
	if err != nil {
		_ = unix.Close(pair[0])
		return -1, 0, fmt.Errorf("start the guardian: %w", err)
	}
	return pair[0], pid, nil
}

// close ends the guardian, which has nothing left to guard, and waits for its end.
func (g *guard) close() {
	<-g.first
	g.mu.Lock()
	g.closed = true
	close(g.closing)
	g.kill()
	g.mu.Unlock()
	<-g.ended
	testify(g.held, g.proof[:])
	closeAll(g.held)
	if g.sock >= 0 {
		_ = unix.Close(g.sock)
	}
}

// kill sends SIGKILL to the guardian, if there is one.
func (g *guard) kill() {
	if g.pid != 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL)
	}
}

// bury reaps a guardian that ended, and reports whether another one is wanted.
func (g *guard) bury() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid != 0 {
		g.sup.reap(g.pid)
		g.pid = 0
	}
	return !g.closed
}
