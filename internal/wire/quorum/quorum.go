// Package quorum keeps a log on several voters, so that no minority of them can lose, split or
// extend it. It is Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus
// Algorithm", USENIX ATC 2014) as implemented by go.etcd.io/raft; docs/adr/0008 says why.
//
// The log is bounded. Its leader replaces the past by a snapshot, which is an entry like any other.
// Each voter drops the entries before the snapshot when it applies it. A new voter, or a voter that
// is too far behind, gets the snapshot and the entries after it in one message.
//
// The log is in memory, and on a [Disk] if there is one. Without a disk, a voter that dies never
// returns: a process that starts again is another voter with a new ID.
package quorum

import (
	"errors"
	"io"
	"log"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Voter is a process that keeps the log.
type Voter struct {
	// ID is random, not 0, and used once.
	ID uint64
	// Name is the node's name, and Addr the HOST:PORT where other voters reach this one.
	Name, Addr string
}

// Config configures a voter. VotersChanged, LeaderChanged, LeaderHeard and Disk may be nil.
type Config struct {
	Self Voter
	Disk Disk
	// A follower becomes a candidate when it has not heard the leader for ElectionTimeout. The
	// actual time is random, up to twice as long. A leader that does not hear a majority for
	// ElectionTimeout steps down.
	ElectionTimeout time.Duration
	// Send sends a message to another voter. It must not block and may lose the message, but must
	// report the outcome with [Message.Done].
	Send func(Message)
	// VotersChanged is called when the voters have changed. It must not block. A leader calls it
	// when the new voters no longer need the old ones, because enough new voters know the change.
	VotersChanged func([]Voter)
	// LeaderChanged is called when Leader has changed. It must not block.
	LeaderChanged func()
	// LeaderHeard is called for each message of the leader. It must not block.
	LeaderHeard func()
}

// A leader sends heartbeats ten times as often as necessary, as in etcd. The clock is finer,
// because voters whose timeouts end at the same tick split the vote, and this costs a whole
// election.
const (
	ticksToElect = 40
	ticksToBeat  = 4
	// ticksToDoubt is the silence of a leader after which its followers report no leader: three
	// heartbeats.
	ticksToDoubt = 3 * ticksToBeat
)

// These limit the bytes of a message with entries, and the number of unanswered messages to a
// voter. A message with a single entry may be longer.
const (
	maxAppend        = 256 << 10
	maxInflight      = 16
	maxInflightBytes = maxInflight * maxAppend
)

// Log is one voter's part of the log.
type Log struct {
	cfg    Config
	inbox  inbox
	closed chan struct{}
	terms  chan *Term
	view   view

	// The fields below belong to the goroutine of run.
	storage *raft.MemoryStorage
	node    *raft.RawNode
	past    past
	members members
	// incoming is the snapshot message that is being handled.
	incoming *raftpb.Message
	news     announcement
	term     *Term
	// transfers are called with the outcome of a leadership transfer.
	transfers []func(error)
	// failed is the error of the disk that has ended this voter's part.
	failed error
}

// view is the part of a log that any goroutine may read.
type view struct {
	// leader is the voter that leads, by the knowledge of this voter. begun says that the log has
	// voters.
	leader atomic.Pointer[Voter]
	begun  atomic.Bool
}

// leads returns the voter that leads; its ID is 0 if there is none.
func (v *view) leads() Voter {
	if leader := v.leader.Load(); leader != nil {
		return *leader
	}
	return Voter{}
}

// Follow starts a new voter that waits for a leader that adds it to a log, or for [Log.Found].
func Follow(cfg Config) (*Log, error) {
	l := newLog(cfg)
	if l.rewrite(); l.failed != nil {
		return nil, l.failed
	}
	return l, l.begin()
}

func newLog(cfg Config) *Log {
	return &Log{
		cfg: cfg, inbox: newInbox(), closed: make(chan struct{}), terms: make(chan *Term, 1), storage: raft.NewMemoryStorage(),
		members: members{known: map[uint64]peer{}, conf: &raftpb.ConfState{}},
	}
}

// begin starts the voter.
func (l *Log) begin() error {
	if err := l.renew(); err != nil {
		return err
	}
	go l.run()
	return nil
}

// renew starts raft with the contents of the storage.
func (l *Log) renew() (err error) {
	l.node, err = raft.NewRawNode(&raft.Config{
		ID: l.cfg.Self.ID, ElectionTick: ticksToElect, HeartbeatTick: ticksToBeat, Storage: l.storage,
		MaxSizePerMsg: maxAppend, MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err == nil && l.past.index > 0 {
		l.view.begun.Store(true)
		l.announce()
	}
	return err
}

// Found begins a log that this voter and others keep, unless this voter knows that the log has
// already begun. All these voters must be new followers. This voter leads first: at once if it is
// alone, otherwise when a majority answers. Only one voter may found a log with the same others.
func (l *Log) Found(others ...Voter) {
	l.inbox.post(func() {
		if l.view.begun.Load() {
			return
		}
		l.found(append([]Voter{l.cfg.Self}, others...))
		l.rewrite()
		must(l.renew())
		must(l.node.Campaign())
	})
}

// found stores the voters of a new log. All voters must agree on them before the first election.
func (l *Log) found(voters []Voter) {
	l.members.learn(voters)
	for _, v := range voters {
		l.members.conf.Voters = append(l.members.conf.Voters, v.ID)
	}
	l.past.index = 1
	must(l.storage.ApplySnapshot(&raftpb.Snapshot{Metadata: l.metadata(1)}))
	hard, _, err := l.storage.InitialState() // this voter may have voted before
	must(err)
	must(l.storage.SetHardState(&raftpb.HardState{Term: new(max(1, hard.GetTerm())), Vote: new(hard.GetVote()), Commit: new(uint64(1))}))
}

// Begun reports whether this voter knows that the log has voters.
func (l *Log) Begun() bool { return l.view.begun.Load() }

// Leader returns the leader that this voter has heard lately. The ID is 0 if there is none.
func (l *Log) Leader() Voter { return l.view.leads() }

// Self returns this voter. A resumed voter has its former ID.
func (l *Log) Self() Voter { return l.cfg.Self }

// Ended returns a channel that is closed when this voter's part has ended, by Close or for the
// reason that Err then returns.
func (l *Log) Ended() <-chan struct{} { return l.closed }

// If this voter's part has ended by itself, Err says why: the disk failed. It is nil before that,
// and after Close.
func (l *Log) Err() error {
	select {
	case <-l.closed:
		return l.failed
	default:
		return nil
	}
}

// Terms returns a channel that gets each term in which this voter leads, when the term begins. If a
// term is not received before the next term begins, it is dropped.
func (l *Log) Terms() <-chan *Term { return l.terms }

// Step handles the [Message.Bytes] of another voter's message. It drops messages for other voters
// and invalid ones.
func (l *Log) Step(from Voter, message []byte) {
	m := &raftpb.Message{}
	if err := proto.Unmarshal(message, m); err != nil || m.GetTo() != l.cfg.Self.ID || m.GetFrom() != from.ID {
		return
	}
	l.inbox.step(&step{from, m})
}

// Close ends this voter's part as if it had died.
func (l *Log) Close() {
	select {
	case l.inbox.closing <- struct{}{}:
	case <-l.closed:
	}
	<-l.closed
}

// ErrNoSuccessor says that no other voter has taken the lead from this voter.
var ErrNoSuccessor = errors.New("no other voter answers")

// If this voter leads, Transfer passes the lead to another voter. It calls done once: when this
// voter no longer leads, or when the other voters have had the time for an election. Proposals are
// refused meanwhile. The caller should then call Close.
func (l *Log) Transfer(done func(error)) {
	if !l.inbox.post(func() { l.transfer(done) }) {
		go done(nil)
	}
}

// transfer hands the lead to the voter that has most of the log.
func (l *Log) transfer(done func(error)) {
	if l.term == nil {
		done(nil)
		return
	}
	l.transfers = append(l.transfers, done)
	heir, most := uint64(0), uint64(0)
	for id, p := range l.node.Status().Progress {
		if id != l.cfg.Self.ID && !p.IsLearner && p.RecentActive && p.Match >= most {
			heir, most = id, p.Match
		}
	}
	if heir != 0 {
		l.node.TransferLeader(heir)
	}
	l.checkTransfer()
}

// checkTransfer notes that a transfer has failed: Raft gives up after an election timeout.
func (l *Log) checkTransfer() {
	if len(l.transfers) > 0 && l.node.BasicStatus().LeadTransferee == raft.None {
		l.transferred(ErrNoSuccessor)
	}
}

func (l *Log) transferred(err error) {
	for _, done := range l.transfers {
		done(err)
	}
	l.transfers = nil
}
