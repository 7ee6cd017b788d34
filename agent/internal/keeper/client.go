// Package keeper keeps ranks alive for the next agent of a node.
//
// An agent that opens a [Keeper] starts its ranks through a helper process ("rankkeeper"). The
// keeper owns what would die with the agent: it supervises the ranks (internal/process/proc, with a
// guardian of its own), and has their pipes, their exits, torch's store and the connections to the
// coordinator. It also keeps the agent's data about each job, scope, rank and store. If the agent
// is killed, the next agent that opens the same directory finds all this in [Keeper.Left]. The
// ranks die if no agent comes before the lease is over, or if the keeper is killed too.
//
// Agent and keeper belong to the same user and share a socket in the directory. A lock in the
// directory admits one agent at a time. The kernel releases the lock when the agent dies.
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

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/launcher/report"
)

var (
	// ErrGone says that the keeper has died. Then the ranks are dead as well.
	ErrGone = errors.New("the keeper of the ranks has died, and the ranks with it")
	// ErrBusy says that a living agent has the directory.
	ErrBusy = errors.New("another agent with the same name lives on this machine")
)

// Left is what a dead agent has left at the keeper.
type Left struct {
	// Membership is what [Keeper.Joined] was given. It is nil when nothing was left.
	Membership []byte
	// Lease is the time, by [procfs.BootTime], at which the ranks die if the lease is not renewed.
	Lease time.Duration
	// Jobs has the data of [Keeper.Put], and Files the files of [Keeper.Keep], which the caller owns.
	Jobs  map[string][]byte
	Files map[string]*os.File
	// Stores are the stores by job.
	Stores map[string]*Store
	Scopes []*Scope
}

// Keeper is the agent's side. Several goroutines may use it.
type Keeper struct {
	// Left and Proof do not change. The guardian sends Proof on a held connection before it closes
	// the connection, see [proc.Supervisor.Proof]. An older keeper has no Proof.
	Left  Left
	Proof [32]byte

	link *link
	lock *os.File
	// process is the keeper. It is not pinned on systems without pidfds, and for an older keeper
	// that does not send its pid.
	process procfs.Handle
	warn    func(error)
	gone    chan struct{}

	mu     sync.Mutex
	seq    uint64
	asked  map[uint64]chan message
	scopes map[int]*Scope
	stores map[string]*Store
	held   int
	// limit kills a keeper that does not answer.
	limit *time.Timer
}

// read receives answers and news until the keeper ends.
func (k *Keeper) read() {
	for {
		m, fds, err := k.link.receive()
		if err != nil {
			break
		}
		frame.Close(fds)
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

// codeUnknown is the code of a rank whose exit is unknown. Callers check Gone before they use the
// code.
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
		k.limit.Reset(m.At - procfs.BootTime() + hungLimit)
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

// ask sends an order and waits for its answer.
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

// giveUp kills a keeper that hangs, since a stopped keeper could continue later, while other ranks
// run in place of its own. Its ranks are dead before other ranks start: they die with the keeper,
// or its guardian kills them, or the next keeper kills them before it starts ranks.
func (k *Keeper) giveUp() {
	if k.process.Pinned() {
		k.process.Kill()
	}
	_ = k.link.conn.Close()
}

// say sends an order that has no answer. It returns no error: an order fails to arrive only if the
// keeper is dead, and the ranks with it.
func (k *Keeper) say(m message) { _ = k.link.send(m) }

// Gone is closed when the keeper and its ranks have died. It is nil for a nil Keeper.
func (k *Keeper) Gone() <-chan struct{} {
	if k == nil {
		return nil
	}
	return k.gone
}

// Joined keeps what the next agent needs to be the same member of the job or cluster. It ends the
// connections of earlier agents, so the coordinator must have accepted this agent on a connection
// of its own.
func (k *Keeper) Joined(membership []byte) { k.say(message{Do: doJoined, Data: membership}) }

// Put keeps data about a job, until Drop.
func (k *Keeper) Put(id string, task []byte) { k.say(message{Do: doPut, Job: id, Data: task}) }

// Keep keeps a duplicate of a job's file until Drop. The file replaces the file that was kept
// before.
func (k *Keeper) Keep(id string, f *os.File) error {
	fd, err := proc.Duplicate(f)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return k.link.send(message{Do: doFile, Job: id}, fd)
}

// Drop forgets a job that is over.
func (k *Keeper) Drop(id string) { k.say(message{Do: doDrop, Job: id}) }

// hungLimit is how long after the end of an unrenewed lease an agent kills a keeper. The guardian
// has killed the ranks by then.
const hungLimit = time.Second

// Renew sets the time, by [procfs.BootTime], at which the ranks die if Renew is not called again.
func (k *Keeper) Renew(end time.Duration) { k.say(message{Do: doRenew, At: end}) }

// Dial makes the keeper hold each connection that the function dial makes, until the connection is
// closed here. The peer then does not notice when this process dies. Once the keeper and the ranks
// are dead, the guardian sends the Proof on the connection and closes it.
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
	if k.process.Pinned() { // the next keeper ends leftover ranks only if their keeper is dead
		procfs.AwaitAll([]procfs.Handle{k.process}, time.Now().Add(endLimit), nil)
	}
	// The log stays if the keeper wrote something while it had no agent.
	dir := k.lock.Name()
	err := os.Remove(filepath.Join(dir, socketName))
	if info, statErr := os.Stat(filepath.Join(dir, logName)); statErr == nil && info.Size() == 0 {
		err = errors.Join(err, os.Remove(filepath.Join(dir, logName)))
	}
	return errors.Join(err, k.Leave())
}

// endLimit bounds the wait for the end of a keeper that was ordered to end, or killed.
const endLimit = 10 * time.Second

// Leave leaves the ranks to another agent.
func (k *Keeper) Leave() error {
	err := k.link.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // giveUp has closed the connection
	}
	k.process.Close()
	return errors.Join(err, k.lock.Close())
}
