// Package election lets processes elect their coordinator.
//
// A [Participant] is one of these processes. It votes by Raft (internal/wire/quorum), carries
// Raft's messages between the processes, and tells callers which process leads.
package election

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// Config describes a participant. Addr is empty if the participant does not listen yet.
type Config struct {
	Node, Addr string
	// Peers are the addresses of a cluster's coordinators. All coordinators have the same list, in
	// the same order, and it contains Addr. For a job, Peers is empty. Facts are options that must
	// be the same for all coordinators. File keeps this coordinator's log.
	Peers []string
	Facts map[string]string
	File  *log.File
	Lease time.Duration
	// Client is nil in tests only.
	Client *tls.Config
	Listen func(netip.Addr) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Warn   func(error)
	// Note gets messages that say what the peers wait for.
	Note func(string)
	// Serve serves the other participants at a listener.
	Serve func(net.Listener) error
	// Coordinates says that the coordinator is in this process.
	Coordinates func() bool
	// Elected is called for each term for which this process was elected. VotersChanged is called
	// when the set of voters has changed.
	Elected       func(*quorum.Term)
	VotersChanged func()
}

// Participant is a process that may be elected as coordinator.
type Participant struct {
	cfg Config
	// self has no address before the participant listens. From then on it does not change.
	self          quorum.Voter
	leaderChanged broadcast
	leaderHeard   broadcast
	// asking counts the callers that wait for the coordinator.
	asking atomic.Int64
	closed context.Context
	cancel context.CancelFunc
	busy   sync.WaitGroup
	// voters are the voters in the log, this one first. coordinators are the addresses that this
	// process's agent has received.
	voters       atomic.Pointer[[]quorum.Voter]
	coordinators atomic.Pointer[[]string]
	transport    transport
	chunks       chunkAssembler

	mu  sync.Mutex
	log *quorum.Log
}

// New returns a participant that does not listen yet.
func New(cfg Config) *Participant {
	p := &Participant{
		cfg: cfg, self: quorum.Voter{ID: 1 + rand.Uint64N(1<<62), Name: cfg.Node, Addr: cfg.Addr},
	}
	p.closed, p.cancel = context.WithCancel(context.Background())
	p.transport = transport{p: p, queues: map[route]*sendQueue{}}
	return p
}

// Self is this participant as a voter.
func (p *Participant) Self() quorum.Voter { return p.self }

// Closed returns a channel that is closed when the participant is closed.
func (p *Participant) Closed() <-chan struct{} { return p.closed.Done() }

// Close ends the participation.
func (p *Participant) Close() {
	p.cancel()
	if log := p.quorumLog(); log != nil {
		log.Close()
	}
	p.busy.Wait()
}

// Transfer makes another process lead, if another process has enough of the log. It returns when
// this process no longer leads.
func (p *Participant) Transfer() {
	if log := p.quorumLog(); log != nil {
		over := make(chan struct{})
		log.Transfer(func(error) { close(over) }) // this process gives up even after an error
		<-over
	}
}

// Err says why the log could not be kept.
func (p *Participant) Err() error {
	if log := p.quorumLog(); log != nil {
		return log.Err()
	}
	return nil
}

func (p *Participant) quorumLog() *quorum.Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log
}

// Open listens at an address of this node, and follows a coordinator that wants this process as a
// voter. If listening fails, it returns the zero Voter.
func (p *Participant) Open(at netip.Addr) quorum.Voter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		return quorum.Voter{}
	}
	if err := p.listen(at); err != nil {
		p.cfg.Warn(fmt.Errorf("node %s cannot take over from the coordinator: %w", p.cfg.Node, err))
		return quorum.Voter{}
	}
	return p.self
}

func (p *Participant) listen(at netip.Addr) error {
	if p.self.Addr == "" {
		l, err := p.cfg.Listen(at)
		if err != nil {
			return err
		}
		p.self.Addr = l.Addr().String()
		p.busy.Go(func() {
			if err := p.cfg.Serve(l); err != nil {
				p.cfg.Warn(err)
			}
		})
	}
	if p.log != nil || p.cfg.Coordinates() { // this participant follows, or will found the log
		return nil
	}
	return p.start(quorum.Follow)
}

// Learn stores the addresses where the coordinator is or may be elected.
func (p *Participant) Learn(addrs []string) { p.coordinators.Store(&addrs) }

// LeaderChanged wakes the callers that wait for the coordinator.
func (p *Participant) LeaderChanged() { p.leaderChanged.send() }

// Found begins the log in this process, and elects this process at once.
func (p *Participant) Found() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log == nil {
		if err := p.start(quorum.Follow); err != nil {
			return err
		}
	}
	p.log.Found()
	return nil
}

// These divide a lease into election timeouts. In a job, a new coordinator is then elected within a
// third of a lease, if the vote is not split. In the same time, a deposed coordinator learns that
// it is deposed. The timeout of a cluster's peers is half as long, because peers do no other work.
// So in a third of a lease they have time for one split vote.
const (
	ElectionsPerLease     = 6
	PeerElectionsPerLease = 12
)

func (p *Participant) start(open func(quorum.Config) (*quorum.Log, error)) error {
	cfg := quorum.Config{
		Self: p.self, ElectionTimeout: p.cfg.Lease / ElectionsPerLease,
		Send: p.transport.send, VotersChanged: p.votersChanged, LeaderChanged: p.leaderChanged.send,
		LeaderHeard: p.leaderHeard.send,
	}
	if len(p.cfg.Peers) > 0 {
		cfg.ElectionTimeout, cfg.Disk = p.cfg.Lease/PeerElectionsPerLease, disk{p}
	}
	log, err := open(cfg)
	if err != nil {
		return fmt.Errorf("cannot write the coordinator's log: %w", err)
	}
	if p.log = log; p.self.ID != log.Self().ID { // a restarted peer keeps its ID
		p.self = log.Self()
	}
	p.busy.Go(func() {
		for {
			select {
			case term := <-log.Terms():
				p.cfg.Elected(term)
			case <-log.Ended():
				p.cancel()
				return
			case <-p.closed.Done():
				return
			}
		}
	})
	return nil
}

func (p *Participant) votersChanged(voters []quorum.Voter) {
	p.voters.Store(&voters)
	p.cfg.VotersChanged()
}

// Others returns all voters except this one.
func (p *Participant) Others() []quorum.Voter {
	if voters := p.voters.Load(); voters != nil {
		return (*voters)[1:]
	}
	return nil
}
