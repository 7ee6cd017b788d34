// Package keeper has ranks outlive the agent that started them, for the next agent of the node.
//
// An agent that opens a [Keeper] starts its ranks through a small process ("rankkeeper"), which has what dies with a parent: it
// supervises them (internal/process/proc, with a guardian of its own), holds the ends of their pipes, their exits, torch's store and the
// connections to the coordinator, and knows in the agent's own words what each is about. When the agent is killed, the next to open the
// same directory finds all that in [Keeper.Left]. When none comes before the lease is over, or the keeper is killed too, the ranks die.
//
// They speak over a socket in the directory, and only as the same user. A lock there, which the kernel lets go of with the agent's
// life, sees to it that there is one agent at a time.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

var (
	// ErrGone says that the keeper has died. Then the ranks are dead as well.
	ErrGone = errors.New("the keeper of the ranks has died, and they with it")
	// ErrBusy says that another agent lives that has the directory.
	ErrBusy = errors.New("another agent with the same name lives on this machine")
)

// Left is what an agent that has died has left behind.
type Left struct {
	// Membership is what [Keeper.Joined] was given; nil when nothing was left.
	Membership []byte
	// Lease is when the ranks will be dead, by [proc.BootTime].
	Lease time.Duration
	// Jobs has what [Keeper.Put] was given.
	Jobs map[string][]byte
	// Stores are by job.
	Stores map[string]*Store
	Scopes []*Scope
}

// Keeper is an agent's end of one. Its methods may be called from several goroutines.
type Keeper struct {
	// Left and Proof do not change. Proof is what the connections that are held end with, see [proc.Supervisor.Proof]; an older keeper
	// has none.
	Left  Left
	Proof [32]byte

	link *link
	lock *os.File
	// process is a pidfd of the keeper; nil if it is older and does not tell its number, or there are no pidfds.
	process *os.File
	warn    func(error)
	gone    chan struct{}

	mu     sync.Mutex
	seq    uint64
	asked  map[uint64]chan message
	scopes map[int]*Scope
	stores map[string]*Store
	held   int
	// limit gives up a keeper that does not answer.
	limit *time.Timer
}

// read takes answers and news until the keeper's end.
func (k *Keeper) read() {
	for {
		m, fds, err := k.link.receive()
		if err != nil {
			break
		}
		closeAll(fds)
		k.hear(m)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.gone)
	for _, sc := range k.scopes {
		for _, end := range sc.alive {
			end(report.Exit{Code: codeUnknown}, time.Now())
		}
		clear(sc.alive)
	}
	for _, s := range k.stores {
		close(s.changes)
	}
	clear(k.stores)
}

// codeUnknown is that of a rank whose end nobody has seen; who watches it looks at Gone first.
const codeUnknown = 255

func (k *Keeper) hear(m message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch m.Do {
	case doExit:
		if sc := k.scopes[m.ID]; sc != nil && m.Exit != nil {
			sc.ended(m)
		}
		return
	case doEnded:
		if s := k.stores[m.Job]; s != nil {
			delete(k.stores, m.Job)
			close(s.changes)
		}
		return
	case doChanged:
		if s := k.stores[m.Job]; s != nil {
			s.changed()
		}
		return
	case doRenew:
		k.limit.Reset(m.At - proc.BootTime() + hungLimit)
		return
	case doWarn:
		go k.warn(errors.New(m.Error))
		return
	case doStart:
		if sc := k.scopes[m.ID]; sc != nil && m.PID != 0 {
			sc.fresh[m.PID] = sc.process(m)
		}
	}
	if answer := k.asked[m.Seq]; answer != nil {
		delete(k.asked, m.Seq)
		answer <- m
	}
}

// ask gives an order and waits for its answer.
func (k *Keeper) ask(m message, fds ...int) (message, error) {
	answer := make(chan message, 1)
	k.mu.Lock()
	k.seq++
	m.Seq = k.seq
	k.asked[m.Seq] = answer
	k.mu.Unlock()
	if err := k.link.send(m, fds...); err != nil {
		if os.IsTimeout(err) {
			k.giveUp()
		}
		<-k.gone
	}
	select {
	case m := <-answer:
		return m, m.err()
	case <-k.gone:
		return message{}, ErrGone
	}
}

// giveUp kills a keeper that hangs. Its ranks die with it, or by its guardian, or before the next keeper begins: one that was stopped would
// let them live while others run in their place.
func (k *Keeper) giveUp() {
	if k.process != nil {
		if conn, err := k.process.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
		}
	}
	_ = k.link.conn.Close()
}

// say gives an order that has no answer. What does not reach a keeper is about ranks that are dead.
func (k *Keeper) say(m message) { _ = k.link.send(m) }

// Gone is closed when the keeper has died, and the ranks with it. It is nil, and never closed, without a keeper.
func (k *Keeper) Gone() <-chan struct{} {
	if k == nil {
		return nil
	}
	return k.gone
}

// Joined keeps what the agent needs to go on as the same member of the job or cluster. The connections of the agents before it, which
// were held until now, end: it must have been welcomed on one of its own.
func (k *Keeper) Joined(membership []byte) { k.say(message{Do: doJoined, Data: membership}) }

// Put keeps what a job is about, until Drop.
func (k *Keeper) Put(id string, task []byte) { k.say(message{Do: doPut, Job: id, Data: task}) }

// Drop forgets a job that is over.
func (k *Keeper) Drop(id string) { k.say(message{Do: doDrop, Job: id}) }

// hungLimit is how long after the lease a keeper that has not renewed it is given up: its guardian has killed the ranks.
const hungLimit = time.Second

// Renew says when the ranks must be dead unless it is said again, by [proc.BootTime].
func (k *Keeper) Renew(end time.Duration) { k.say(message{Do: doRenew, At: end}) }

// Dial has the keeper hold each connection that dial makes until it is closed here, or keeper and ranks are dead, of which it then ends
// with the Proof: its other end does not see when this process dies.
func (k *Keeper) Dial(dial func(context.Context) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		socket, ok := conn.(syscall.Conn)
		if !ok {
			return nil, errors.Join(fmt.Errorf("a %T cannot be kept", conn), conn.Close())
		}
		fd, err := proc.Duplicate(socket)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		defer unix.Close(fd)
		k.mu.Lock()
		k.held++
		id := k.held
		k.mu.Unlock()
		if err := k.link.send(message{Do: doHold, ID: id}, fd); err != nil {
			return nil, errors.Join(fmt.Errorf("hold a connection: %w", err), conn.Close())
		}
		return &keptDial{conn, func() { k.say(message{Do: doRelease, ID: id}) }}, nil
	}
}

type keptDial struct {
	net.Conn
	release func()
}

func (c *keptDial) Close() error {
	c.release()
	return c.Conn.Close()
}

// End kills all ranks, and the keeper, and returns when they are dead.
func (k *Keeper) End() error {
	k.say(message{Do: doEnd})
	<-k.gone
	k.awaitEnd()
	// What a keeper had to say to nobody stays.
	dir := k.lock.Name()
	err := os.Remove(filepath.Join(dir, socketName))
	if info, statErr := os.Stat(filepath.Join(dir, logName)); statErr == nil && info.Size() == 0 {
		err = errors.Join(err, os.Remove(filepath.Join(dir, logName)))
	}
	return errors.Join(err, k.Leave())
}

// awaitEnd waits until the keeper's process has ended: while it lives, what it has started is not the next one's to end.
func (k *Keeper) awaitEnd() {
	if k.process == nil {
		return
	}
	if err := k.process.SetReadDeadline(time.Now().Add(endLimit)); err != nil {
		return
	}
	if conn, err := k.process.SyscallConn(); err == nil {
		_ = conn.Read(func(fd uintptr) bool { // the next keeper, if any, waits for whatever lives on
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 && err == nil
		})
	}
}

// endLimit bounds the wait for a process that has been told to end, or killed.
const endLimit = 10 * time.Second

// Leave leaves the ranks to another agent.
func (k *Keeper) Leave() error {
	err := k.link.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // it was given up
	}
	err = errors.Join(err, k.lock.Close())
	if k.process != nil {
		err = errors.Join(err, k.process.Close())
	}
	return err
}
