// Package guard keeps a guardian alive: the helper process that kills this process's ranks if this
// process dies.
package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/guardian"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

const (
	// sendLimit is how long a message may wait for a guardian that does not read. Then another
	// guardian replaces it.
	sendLimit = 5 * time.Second
	// sendBuffer bounds the messages that a guardian has not read, in bytes. Linux doubles it and
	// counts some 768 bytes for a short message: the guardian may be some 20 messages behind. A
	// start on eight GPUs without a cgroup sends 13 messages, so it does not wait until the
	// guardian runs.
	sendBuffer = 8 << 10
	// stoppedLimit is how long a guardian may be stopped while its owner runs.
	stoppedLimit = time.Second
	// respawnDelay is the pause after two guardians in a row if both lived for less than this time.
	respawnDelay = time.Second
)

// Options describe the processes that a guardian guards.
type Options struct {
	// Cgroup is the cgroup of all ranks, and Record is the path of the owner's record; both may be
	// empty.
	Cgroup, Record string
	// Since is an epoch before the start of any rank.
	Since procfs.Epoch
	// Subreaper says that the owner adopts the orphans of its ranks. Session is the owner's
	// session, in which no orphan is; it is 0 in a PID namespace that does not see the session's
	// leader.
	Subreaper bool
	Session   int
	// Start calls start, which starts a guardian, and notes that the guardian is a child of the
	// owner. Reap reaps a guardian that has ended.
	Start func(start func() (pid int, err error)) (int, error)
	Reap  func(pid int)
	// Warn is called when a guardian has replaced another.
	Warn func(error)
}

// Guard is the owner's side: the facts that a guardian must know, and the process that is the
// guardian now.
type Guard struct {
	opts Options
	// starved is the proof that all ranks are dead and that the kernel killed the owner for want of
	// memory. proof, its hash, is the proof for any other death.
	starved, proof [32]byte
	// lease is when the lease ends, in nanoseconds of CLOCK_BOOTTIME; 0 without one.
	lease atomic.Int64
	// oom counts the kills for want of memory in the owner's cgroup, which is the guardian's.
	oom *cgroup.OOMCounter
	// first is closed when the first guardian was started or could not be started.
	first   chan struct{}
	closing chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
	pid    int
	sock   int
	trails map[string]sweep.Trail
	held   []int
}

// New starts a guardian in the background.
func New(o Options) *Guard {
	g := &Guard{
		opts: o, sock: -1, trails: map[string]sweep.Trail{}, oom: cgroup.NewOOMCounter(""),
		first: make(chan struct{}), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	_, _ = rand.Read(g.starved[:]) // it does not fail
	g.proof = sha256.Sum256(g.starved[:])
	go g.run()
	return g
}

// Ready waits until the first guardian was started: its socket keeps messages from then on.
func (g *Guard) Ready() error {
	<-g.first
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Proof is the text at the end of held sockets, or the hash of that text, see [Guard.Hold].
func (g *Guard) Proof() [32]byte { return g.proof }

// PID is the number of the guardian that runs.
func (g *Guard) PID() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pid
}

// run keeps a guardian alive until Close, and warns when one has replaced another.
func (g *Guard) run() {
	defer close(g.ended)
	first := sync.OnceFunc(func() { close(g.first) })
	var former error
	for young := false; ; {
		born := time.Now()
		pid, err := g.launch()
		first()
		switch {
		case former != nil && err == nil:
			g.opts.Warn(fmt.Errorf("%w; pid %d takes over", former, pid))
		case former != nil:
			g.opts.Warn(fmt.Errorf("%w; then: %w", former, err))
		}
		if former = err; err == nil {
			former = g.awaitEnd(pid)
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

// awaitEnd returns why a guardian has stopped guarding. A guardian that stays stopped would never
// kill the ranks, so it is killed.
func (g *Guard) awaitEnd(pid int) error {
	for {
		state, err := procfs.Wait(pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
		if err != nil || state.Code != procfs.Stopped {
			code, _, ok := procfs.AwaitExit(pid)
			if !ok {
				code = codeUnknown
			}
			return fmt.Errorf("the guardian (pid %d) ended with code %d", pid, code)
		}
		if g.staysStopped(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
			procfs.AwaitExit(pid)
			return fmt.Errorf("the guardian (pid %d) was stopped by signal %d", pid, state.Status)
		}
	}
}

// codeUnknown is the exit code if another part of the program has reaped the guardian.
const codeUnknown = 255

// staysStopped reports whether a stopped guardian stays so for a second in which its owner runs.
// The guardian gets this second because a scheduler that suspends a job stops one process after
// another: a new guardian would miss the scheduler's signal and run on.
func (g *Guard) staysStopped(pid int) bool {
	for {
		begin := procfs.BootTime()
		select {
		case <-time.After(stoppedLimit):
		case <-g.closing:
			return true
		}
		state, err := procfs.Wait(pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG)
		if err != nil || state.Code != procfs.Stopped {
			return false
		}
		if procfs.BootTime()-begin < 2*stoppedLimit {
			return true
		}
	}
}

// launch starts a guardian and sends it the whole state.
func (g *Guard) launch() (int, error) {
	sock, pid, err := g.start()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err = err; err != nil {
		return 0, err
	}
	if g.sock >= 0 {
		_ = unix.Close(g.sock)
	}
	g.sock, g.pid = sock, pid
	if g.closed {
		g.kill()
		return pid, nil
	}
	g.sendAll()
	return pid, nil
}

// start starts a guardian. It has no death signal: it must outlive this process.
func (g *Guard) start() (sock, pid int, err error) {
	sock, theirs, err := newSocket()
	if err != nil {
		return -1, 0, fmt.Errorf("make a socket for the guardian: %w", err)
	}
	defer theirs.Close()
	pid, err = g.opts.Start(func() (int, error) { return execGuardian(theirs) })
	if err != nil {
		_ = unix.Close(sock)
		return -1, 0, fmt.Errorf("start the guardian: %w", err)
	}
	return sock, pid, nil
}

// execGuardian starts a guardian and gives it one end of the socket. Package os/exec would fork
// another process before the first one, to learn whether the kernel has pidfds.
func execGuardian(socket *os.File) (pid int, err error) {
	proof, err := helper.File()
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec("/proc/self/exe", []string{guardian.Name}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append([]string{"GOMAXPROCS=1"}, helper.Env()...), // the first value of a name counts
		Files: []uintptr{null.Fd(), null.Fd(), os.Stderr.Fd(), proof.Fd(), socket.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// newSocket returns both ends of a guard's socket.
func newSocket() (sock int, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, err
	}
	limit := unix.NsecToTimeval(sendLimit.Nanoseconds())
	if err := errors.Join(
		unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer),
	); err != nil {
		frame.Close(pair[:])
		return -1, nil, err
	}
	return pair[0], os.NewFile(uintptr(pair[1]), "guardian's socket"), nil
}

// Close ends the guardian, which has nothing left to guard, and ends the held sockets with the
// proof that no rank lives.
func (g *Guard) Close() {
	<-g.first
	g.mu.Lock()
	g.closed = true
	close(g.closing)
	g.kill()
	g.mu.Unlock()
	<-g.ended
	guardian.Prove(g.held, g.proof[:])
	frame.Close(g.held)
	if g.sock >= 0 {
		_ = unix.Close(g.sock)
	}
}

// kill sends SIGKILL to the guardian, if there is one.
func (g *Guard) kill() {
	if g.pid != 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL)
	}
}

// bury reaps a guardian that has ended, and reports whether another one is needed.
func (g *Guard) bury() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid != 0 {
		g.opts.Reap(g.pid)
		g.pid = 0
	}
	return !g.closed
}
