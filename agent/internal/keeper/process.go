package keeper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

const (
	// keeperName is the keeper's argv[0] and thread name.
	keeperName = "rankkeeper"
	// keeperSocket is the descriptor at which a keeper listens.
	keeperSocket = helper.First
)

// A program that contains this package becomes a keeper when it is started under the keeper's name.
func init() {
	if helper.Is(keeperName) {
		if err := serve(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", keeperName, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// keeper is the keeper process. All its fields belong to the goroutine of serve.
type keeper struct {
	sup  *proc.Supervisor
	work chan func()
	// link is the link to the agent. It is nil while there is no agent.
	link       *link
	membership []byte
	jobs       map[string][]byte
	files      map[string][]int // of jobs
	stores     map[string]*keptStore
	scopes     map[int]*keptScope
	// servers are the agent's fork servers. They end with the agent.
	servers map[int]*forkserver.Server
	made    int
	conns   []keptConn
	// lease is when the guardian kills the ranks, by CLOCK_BOOTTIME; 0 without a lease. limit ends
	// the keeper if no agent has connected by then.
	lease time.Duration
	limit *time.Timer
	// starts are the processes that are being started for the agent.
	starts sync.WaitGroup
	over   bool
}

// keptScope is a scope with its agent's data.
type keptScope struct {
	*proc.Scope
	name  string
	data  []byte
	since procfs.Epoch
	ranks []*keptRank
	// stopped says that the agent has ordered the end of the scope.
	stopped bool
}

// keptRank is a process, with the files that the next agent needs to adopt it.
type keptRank struct {
	process *proc.Process
	data    []byte
	files   []int
}

// keptConn is an agent's connection to the coordinator, which must not end before the ranks are
// dead. former says that the agent has died.
type keptConn struct {
	id     int
	file   *os.File
	former bool
}

// keptStore is torch's store of a job.
type keptStore struct {
	*tcpstore.Store
	data  []byte
	peers atomic.Pointer[tcpstore.Peers]
	most  atomic.Int64
	// coming are the parts of a list of peers that have arrived so far.
	coming []netip.Addr
	// ended says that the store ended without an order from the agent. A proxy ends when the store
	// behind it ends.
	ended bool
}

// serve keeps ranks until the agent orders the end, or until the lease ends without an agent.
func serve() error {
	// Catch these signals instead of ignoring them: ranks would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), helper.Signals()...)
	unix.CloseOnExec(keeperSocket)
	if err := helper.Rename(keeperName); err != nil {
		return err
	}
	file := os.NewFile(keeperSocket, "keeper")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	k := &keeper{
		work: make(chan func()), jobs: map[string][]byte{}, files: map[string][]int{}, stores: map[string]*keptStore{}, scopes: map[int]*keptScope{}, servers: map[int]*forkserver.Server{},
	}
	k.limit = time.AfterFunc(sendLimit, func() { k.post(k.expire) })
	if k.sup, err = proc.New(proc.Options{Subreaper: true, Warn: func(err error) { go k.post(func() { k.warn(err) }) }}); err != nil {
		return err
	}
	go k.accept(listener.(*net.UnixListener))
	for !k.over {
		(<-k.work)()
	}
	return k.sup.Close()
}

func (k *keeper) post(f func()) { k.work <- f }

// accept serves one agent after another.
func (k *keeper) accept(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			k.post(func() { k.end(err) })
			return
		}
		if err := checkPeer(conn); err != nil {
			k.post(func() { k.warn(fmt.Errorf("refused a connection: %w", err)) })
			_ = conn.Close()
			continue
		}
		k.attend(&link{conn: conn})
	}
}

// attend serves an agent until the agent is dead and all processes that it ordered have started.
func (k *keeper) attend(l *link) {
	k.post(func() { k.welcome(l) })
	for {
		m, fds, err := l.receive()
		if err != nil {
			break
		}
		m.from = l
		done := make(chan struct{})
		k.post(func() { k.obey(m, fds); close(done) })
		<-done
	}
	k.starts.Wait()
	k.post(k.depart)
}

// welcome sends a new agent everything that the keeper holds. The guardian also holds the
// connection to this agent, because the connection must not end before the ranks are dead.
func (k *keeper) welcome(l *link) {
	k.link = l
	k.hold()
	proof := k.sup.Proof()
	k.tell(message{Do: doJoined, ID: protocol, PID: os.Getpid(), Data: k.membership, At: k.lease})
	k.tell(message{Do: doProof, Data: proof[:]})
	for id, task := range k.jobs {
		k.tell(message{Do: doPut, Job: id, Data: task})
	}
	for id, fds := range k.files {
		k.tell(message{Do: doFile, Job: id}, fds...)
	}
	for id, s := range k.stores {
		k.tell(message{Do: doStore, Job: id, Data: s.data, Store: s.Addr()})
		if s.ended {
			k.tell(message{Do: doEnded, Job: id})
		}
	}
	for id, sc := range k.scopes {
		k.tell(message{Do: doScope, ID: id, Name: sc.name, Data: sc.data, Since: &sc.since, Stopped: sc.stopped})
		for _, r := range sc.ranks {
			k.tell(message{Do: doStart, ID: id, PID: r.process.Pid(), Data: r.data}, r.files...)
			select {
			case <-r.process.Done():
				k.tell(exited(id, r.process))
			default:
			}
		}
	}
	k.tell(message{Do: doReady})
}

func exited(id int, p *proc.Process) message {
	exit := p.Exit()
	return message{Do: doExit, ID: id, PID: p.Pid(), Exit: &exit, Ended: p.At()}
}

// depart waits for another agent.
func (k *keeper) depart() {
	_ = k.link.conn.Close()
	k.link = nil
	for i := range k.conns {
		k.conns[i].former = true
	}
	for id := range k.servers {
		k.unserve(id)
	}
	k.hold()
	k.expire()
}

// expire ends a keeper without an agent once the lease is over.
func (k *keeper) expire() {
	left := k.lease - procfs.BootTime()
	switch {
	case k.link != nil:
	case left > 0:
		k.limit.Reset(left)
	default:
		k.over = true
	}
}

// tell sends a message to the agent. If the agent does not read, the keeper ends: such an agent
// cannot renew its lease either, and the next agent could not know which messages have arrived.
func (k *keeper) tell(m message, fds ...int) {
	if k.link == nil {
		return
	}
	switch err := k.link.send(m, fds...); {
	case os.IsTimeout(err):
		k.end(fmt.Errorf("the agent does not read the keeper's messages: %w", err))
	case errors.Is(err, errTooLong) && m.Seq != 0: // the agent waits for this answer
		k.tell(message{Do: m.Do, Seq: m.Seq, ID: m.ID, Error: err.Error()})
	}
}

func (k *keeper) warn(err error) {
	if k.link == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", keeperName, err)
	}
	k.tell(message{Do: doWarn, Error: err.Error()})
}

func (k *keeper) end(why error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", keeperName, why)
	k.over = true
}

// hold makes the guardian hold the connections that must not end before the ranks are dead.
func (k *keeper) hold() {
	var files []*os.File
	for _, c := range k.conns {
		files = append(files, c.file)
	}
	if k.link != nil {
		f, err := k.link.conn.File()
		if err != nil {
			k.end(err)
			return
		}
		defer f.Close()
		files = append(files, f)
	}
	if err := k.sup.Hold(files...); err != nil {
		k.end(err)
	}
}
