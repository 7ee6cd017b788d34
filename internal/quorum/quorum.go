// Package quorum keeps a log on several voters, so that no minority of them can lose, split or extend it. It is Raft (Ongaro and
// Ousterhout, "In Search of an Understandable Consensus Algorithm", USENIX ATC 2014) as go.etcd.io/raft has it; docs/adr/0008 says
// why.
//
// The log has a bound. Its leader replaces the past by a snapshot, which is an entry like any other: each voter that comes to it in the
// log drops what is before it. Who is new, or too far behind, gets the snapshot and what follows it in one message.
//
// All is in memory. A voter that dies never comes back as itself: who starts again is another voter, with an ID of its own.
package quorum

import (
	"cmp"
	"errors"
	"io"
	"log"
	"slices"
	"sync"
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

// Config is what a voter must know. Voted may be nil.
type Config struct {
	Self Voter
	// ElectionTimeout is the silence of a leader after which a follower becomes a candidate; each waits for up to twice as long, for
	// another time. A leader that does not hear a majority for as long leads no more.
	ElectionTimeout time.Duration
	// Send takes a message to another voter. It must not wait, and may lose it, but says what became of it with [Message.Done].
	Send func(Message)
	// Voted hears who votes, when that has changed, and must not wait either. A leader hears it when so many of them know it too that
	// they can do without it: before, those from before are needed as well.
	Voted func([]Voter)
}

// A leader's heartbeats come ten times as often as would do, as in etcd. The clock is finer: voters that lose patience at the same tick
// split the vote, and that costs a whole election.
const (
	ticksToElect = 40
	ticksToBeat  = 4
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
	known    map[uint64]Voter
	conf     *raftpb.ConfState
	term     *Term
	// transfers are to hear what became of a leadership transfer.
	transfers []func(error)
	// told are the voters that Voted has heard of, or is to hear of (news) when an entry after the given one is committed.
	told  []uint64
	news  bool
	after uint64
}

// step is a message of another voter.
type step struct {
	from Voter
	*raftpb.Message
}

// Bootstrap begins a log. Alone, this voter leads at once. With others, each of which does the same at about the same time with the same
// voters, the one with the lowest ID is the first candidate.
func Bootstrap(cfg Config, others ...Voter) (*Log, error) {
	voters := append([]Voter{cfg.Self}, others...)
	slices.SortFunc(voters, func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	return start(cfg, voters)
}

// Follow has a voter wait for a leader that wants it.
func Follow(cfg Config) (*Log, error) { return start(cfg, nil) }

func start(cfg Config, voters []Voter) (*Log, error) {
	l := &Log{
		cfg: cfg, steps: make(chan *step, maxSteps), wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
		terms: make(chan *Term, 1), storage: raft.NewMemoryStorage(), known: map[uint64]Voter{}, conf: &raftpb.ConfState{},
	}
	if len(voters) > 0 {
		l.found(voters)
	}
	var err error
	l.node, err = raft.NewRawNode(&raft.Config{
		ID: cfg.Self.ID, ElectionTick: ticksToElect, HeartbeatTick: ticksToBeat, Storage: l.storage,
		MaxSizePerMsg: maxAppend, MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err != nil {
		return nil, err
	}
	if len(voters) > 0 {
		l.announce()
		if voters[0].ID == cfg.Self.ID {
			err = l.node.Campaign()
		}
	}
	go l.run()
	return l, err
}

// found puts what all voters of a new log agree on before anybody leads: who they are.
func (l *Log) found(voters []Voter) {
	l.learn(voters)
	for _, v := range voters {
		l.conf.Voters = append(l.conf.Voters, v.ID)
	}
	l.past.index = 1
	must(l.storage.ApplySnapshot(&raftpb.Snapshot{Metadata: l.metadata(1)}))
	must(l.storage.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}))
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

// post has the log's goroutine do something, and never waits. It is false when that has ended.
func (l *Log) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.asks = append(l.asks, f)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

// asked takes what was posted.
func (l *Log) asked() []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	asks := l.asks
	l.asks = nil
	return asks
}

func (l *Log) run() {
	defer close(l.closed)
	defer l.end()
	tick := time.NewTicker(l.cfg.ElectionTimeout / ticksToElect)
	defer tick.Stop()
	for {
		l.advance()
		select {
		case m := <-l.steps:
			l.step(m)
			for range len(l.steps) {
				l.step(<-l.steps)
			}
		case <-l.wake:
			for _, f := range l.asked() {
				f()
			}
		case <-tick.C:
			l.node.Tick()
			l.retain()
		case <-l.closing:
			return
		}
	}
}

// end leaves nobody without an answer.
func (l *Log) end() {
	l.depose()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	for _, f := range l.asked() {
		f()
	}
}

// step takes in one message. The state that comes with a snapshot is kept here until Raft, which has no use for it, has accepted that.
func (l *Log) step(m *step) {
	l.known[m.from.ID] = m.from // a new voter must answer before it has the entry that names its leader
	if m.GetType() != raftpb.MsgSnap {
		_ = l.node.Step(m.Message) // it says why it dropped the message, which the sender may repeat
		return
	}
	l.incoming = m.Message
	_ = l.node.Step(m.Message) // as above
	l.advance()
	l.incoming = nil
}

// advance does what raft has decided: it keeps, sends and applies.
func (l *Log) advance() {
	l.term.read()
	for l.reform(); l.node.HasReady(); l.reform() {
		rd := l.node.Ready()
		if !raft.IsEmptyHardState(rd.HardState) {
			must(l.storage.SetHardState(rd.HardState))
		}
		if !raft.IsEmptySnap(rd.Snapshot) {
			must(l.storage.ApplySnapshot(rd.Snapshot))
			l.restore(rd.Snapshot)
		}
		must(l.storage.Append(rd.Entries))
		for _, m := range rd.Messages {
			l.send(m)
		}
		if rd.SoftState != nil && rd.RaftState != raft.StateLeader {
			l.depose()
		}
		for _, e := range rd.CommittedEntries {
			l.apply(e)
		}
		for _, s := range rd.ReadStates {
			l.term.confirmed(s.RequestCtx)
		}
		l.node.Advance(rd)
		l.compact()
	}
}

// must holds for a storage in memory: it fails only for an entry that is out of its order.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// apply takes in one committed entry.
func (l *Log) apply(e *raftpb.Entry) {
	l.past.index = e.GetIndex()
	if l.news && e.GetIndex() > l.after {
		l.voted()
	}
	switch {
	case e.GetType() != raftpb.EntryNormal:
		l.changed(e)
	case len(e.GetData()) > 0:
		l.past.add(e.GetData())
		l.term.applied(e.GetData())
	default:
		l.settled(e)
	}
}

// settled sees an empty entry. The first of a term is its leader's, which now knows all that was committed before; a later one
// stands for a change of voters that was refused, or follows one that was made.
func (l *Log) settled(e *raftpb.Entry) {
	now := l.node.BasicStatus()
	switch {
	case now.RaftState != raft.StateLeader || now.GetTerm() != e.GetTerm():
	case l.term != nil:
		l.term.changing = false
	default:
		l.term = newTerm(l, e.GetTerm())
		select {
		case <-l.terms: // it is over
		default:
		}
		l.terms <- l.term
	}
}

// depose ends the term in which this voter leads.
func (l *Log) depose() {
	if l.term != nil {
		l.term.end()
		l.term = nil
	}
	l.transferred(nil)
}
