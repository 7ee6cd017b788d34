// Package quorum keeps a log on several voters, so that no minority of them can lose, split or extend it. It is Raft (Ongaro and
// Ousterhout, "In Search of an Understandable Consensus Algorithm", USENIX ATC 2014) as go.etcd.io/raft has it; docs/adr/0008 says
// why.
//
// The log has a bound. Its leader replaces the past by a snapshot, which is an entry like any other: each voter that comes to it in the
// log drops what is before it. Who is new, or too far behind, gets the snapshot and what follows it in one message.
//
// All is in memory, and on a [Disk] if there is one. Without one a voter that dies never comes back as itself: who starts again is another
// voter, with an ID of its own.
package quorum

import (
	"errors"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Voter is one that keeps the log.
type Voter struct {
	// ID is not 0, random, and used once.
	ID uint64
	// Name is the node's, and Addr is HOST:PORT, where the other voters reach it.
	Name, Addr string
}

// Config is what a voter must know. Voted, Led and Disk may be nil.
type Config struct {
	Self Voter
	Disk Disk
	// ElectionTimeout is the silence of a leader after which a follower becomes a candidate; each waits for up to twice as long, for
	// another time. A leader that does not hear a majority for as long leads no more.
	ElectionTimeout time.Duration
	// Send takes a message to another voter. It must not wait, and may lose it, but says what became of it with [Message.Done].
	Send func(Message)
	// Voted hears who votes, when that has changed, and must not wait either. A leader hears it when so many of them know it too that
	// they can do without it: before, those from before are needed as well.
	Voted func([]Voter)
	// Led hears that Leader is another one, and must not wait either.
	Led func()
}

// A leader's heartbeats come ten times as often as would do, as in etcd. The clock is finer: voters that lose patience at the same tick
// split the vote, and that costs a whole election.
const (
	ticksToElect = 40
	ticksToBeat  = 4
	// ticksToDoubt is the silence of a leader after which its followers say that they know of none: three heartbeats.
	ticksToDoubt = 3 * ticksToBeat
)

// Limits on a message of entries in bytes, unless one entry alone is longer, and on those to one voter that wait for an answer.
const (
	maxAppend        = 256 << 10
	maxInflight      = 16
	maxInflightBytes = maxInflight * maxAppend
)

// maxSteps is how many messages wait to be taken in. Raft says again what is lost.
const maxSteps = 256

// Log is one voter's part.
type Log struct {
	cfg     Config
	steps   chan *step
	wake    chan struct{}
	closing chan struct{}
	closed  chan struct{}
	terms   chan *Term

	mu    sync.Mutex
	asks  []func()
	ended bool

	// What follows belongs to the goroutine of run.
	storage *raft.MemoryStorage
	node    *raft.RawNode
	past    past
	// incoming is the snapshot message that is being taken in.
	incoming *raftpb.Message
	known    map[uint64]peer
	conf     *raftpb.ConfState
	term     *Term
	// now is how many ticks there were.
	now int
	// transfers are to hear what became of a leadership transfer.
	transfers []func(error)
	// told are the voters that Voted has heard of, or is to hear of (news) when an entry after the given one is committed.
	told  []uint64
	news  bool
	after uint64
	// failed is why the disk does not keep what it should, which ends this voter's part.
	failed error

	// leader is the voter that leads, as far as this one knows, and begun says that the log has voters.
	leader atomic.Pointer[Voter]
	begun  atomic.Bool
}

// step is a message of another voter.
type step struct {
	from Voter
	*raftpb.Message
}

// Follow has a new voter wait for a leader that wants it, or for [Log.Found].
func Follow(cfg Config) (*Log, error) {
	l := newLog(cfg)
	if l.rewrite(); l.failed != nil {
		return nil, l.failed
	}
	return l, l.begin()
}

func newLog(cfg Config) *Log {
	return &Log{
		cfg: cfg, steps: make(chan *step, maxSteps), wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
		terms: make(chan *Term, 1), storage: raft.NewMemoryStorage(), known: map[uint64]peer{}, conf: &raftpb.ConfState{},
	}
}

// begin has the voter live.
func (l *Log) begin() error {
	if err := l.renew(); err != nil {
		return err
	}
	go l.run()
	return nil
}

// renew has raft begin with what is in the storage.
func (l *Log) renew() (err error) {
	l.node, err = raft.NewRawNode(&raft.Config{
		ID: l.cfg.Self.ID, ElectionTick: ticksToElect, HeartbeatTick: ticksToBeat, Storage: l.storage,
		MaxSizePerMsg: maxAppend, MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err == nil && l.past.index > 0 {
		l.begun.Store(true)
		l.announce()
	}
	return err
}

// Found begins a log that this voter and others keep, all of which are new and follow, unless one has begun that this voter knows of. It is
// the first to lead: alone at once, else when a majority answers. One voter alone may found a log with the same others.
func (l *Log) Found(others ...Voter) {
	l.post(func() {
		if l.begun.Load() {
			return
		}
		l.found(append([]Voter{l.cfg.Self}, others...))
		l.rewrite()
		must(l.renew())
		must(l.node.Campaign())
	})
}

// found puts what all voters of a new log agree on before anybody leads: who they are.
func (l *Log) found(voters []Voter) {
	l.learn(voters)
	for _, v := range voters {
		l.conf.Voters = append(l.conf.Voters, v.ID)
	}
	l.past.index = 1
	must(l.storage.ApplySnapshot(&raftpb.Snapshot{Metadata: l.metadata(1)}))
	hard, _, err := l.storage.InitialState() // it may have voted for one that is no more
	must(err)
	must(l.storage.SetHardState(&raftpb.HardState{Term: new(max(1, hard.GetTerm())), Vote: new(hard.GetVote()), Commit: new(uint64(1))}))
}

// Begun says that the log has voters, as far as this one knows.
func (l *Log) Begun() bool { return l.begun.Load() }

// Leader is the voter that leads, as far as this one has heard lately; its ID is 0 when it has heard of none.
func (l *Log) Leader() Voter {
	if v := l.leader.Load(); v != nil {
		return *v
	}
	return Voter{}
}

// Self is this voter. One that was resumed has its ID from before.
func (l *Log) Self() Voter { return l.cfg.Self }

// Ended is closed when this voter's part has ended: by Close, or for the reason that Err has then.
func (l *Log) Ended() <-chan struct{} { return l.closed }

// Err is why this voter's part has ended by itself: its disk does not keep what it must. It is nil before, and after Close.
func (l *Log) Err() error {
	select {
	case <-l.closed:
		return l.failed
	default:
		return nil
	}
}

// Terms has each term in which this voter leads, when it begins. One that nobody takes before the next is dropped.
func (l *Log) Terms() <-chan *Term { return l.terms }

// Step takes a message of another voter, of which it is [Message.Bytes]; one that is not for this voter, or makes no sense, is dropped.
func (l *Log) Step(from Voter, message []byte) {
	m := &raftpb.Message{}
	if err := proto.Unmarshal(message, m); err != nil || m.GetTo() != l.cfg.Self.ID || m.GetFrom() != from.ID {
		return
	}
	select {
	case l.steps <- &step{from, m}:
	default:
	}
}

// Close ends this voter's part, as if it had died.
func (l *Log) Close() {
	select {
	case l.closing <- struct{}{}:
	case <-l.closed:
	}
	<-l.closed
}

// ErrNoSuccessor says that nobody leads in place of a leader that would have another one.
var ErrNoSuccessor = errors.New("no other voter answers")

// Transfer has another voter lead if this one does. It calls done once, when this voter does not lead any more, or when the others have
// had the time of an election for that. Close follows: what is proposed here meanwhile is refused.
func (l *Log) Transfer(done func(error)) {
	if !l.post(func() { l.transfer(done) }) {
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
	l.retain()
}

// retain sees that a transfer has failed: Raft gives it up after an election timeout.
func (l *Log) retain() {
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
