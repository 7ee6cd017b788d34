// Package quorum keeps a log on several voters, so that no minority of them can lose, split or extend it. It is Raft (Ongaro and
// Ousterhout, "In Search of an Understandable Consensus Algorithm", USENIX ATC 2014) as go.etcd.io/raft has it; docs/adr/0008 says
// why. A log begins with one voter, which leads at once, and gets others as its leader wants.
//
// All is in memory. A voter that dies never comes back as itself: who starts again is another voter, with an ID of its own.
package quorum

import (
	"errors"
	"io"
	"log"
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
	// Patience is the silence of a leader after which voters elect another one, they wait for up to twice as long, each for another
	// time; a leader that does not hear a majority for as long leads no more.
	Patience time.Duration
	// Send takes a message for another voter's [Log.Step]. It must not wait, and may lose it.
	Send func(to Voter, message []byte)
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

// Limits on a message in bytes, unless one entry alone is longer, and on those to one voter that wait for an answer.
const (
	maxMessage  = 256 << 10
	maxInflight = 16
)

// ErrOver says that this voter leads no more: what it was to commit may or may not be in the log.
var ErrOver = errors.New("another coordinator may lead")

// Log is one voter's part.
type Log struct {
	cfg    Config
	inbox  chan func()
	close  chan struct{}
	done   chan struct{}
	reigns chan *Reign

	// What follows belongs to the goroutine of run.
	storage *raft.MemoryStorage
	node    *raft.RawNode
	known   map[uint64]Voter
	conf    *raftpb.ConfState
	// entries are those that are committed, but for raft's own.
	entries [][]byte
	reign   *Reign
	// passed is to be closed when that is over; nil when nobody waits for it.
	passed chan struct{}
	// news says that Voted is to hear of a change, when an entry after this number is committed.
	news  bool
	after uint64
}

// Found begins a log, of which this voter is the only one.
func Found(cfg Config) (*Log, error) {
	return start(cfg, func(l *Log) error {
		if err := l.node.Bootstrap([]raft.Peer{{ID: cfg.Self.ID, Context: encode([]Voter{cfg.Self})}}); err != nil {
			return err
		}
		l.advance()
		return l.node.Campaign()
	})
}

// Wait has a voter wait for a leader that wants it.
func Wait(cfg Config) (*Log, error) { return start(cfg, func(*Log) error { return nil }) }

func start(cfg Config, begin func(*Log) error) (*Log, error) {
	l := &Log{
		cfg: cfg, inbox: make(chan func(), 64), close: make(chan struct{}), done: make(chan struct{}), reigns: make(chan *Reign, 1),
		storage: raft.NewMemoryStorage(), known: map[uint64]Voter{}, conf: &raftpb.ConfState{},
	}
	var err error
	l.node, err = raft.NewRawNode(&raft.Config{
		ID: cfg.Self.ID, ElectionTick: ticksToElect, HeartbeatTick: ticksToBeat, Storage: l.storage,
		MaxSizePerMsg: maxMessage, MaxInflightMsgs: maxInflight,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err == nil {
		err = begin(l)
	}
	if err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Reigns has each time in which this voter leads, when it begins. One that nobody takes before the next is dropped.
func (l *Log) Reigns() <-chan *Reign { return l.reigns }

// Step takes a message of another voter; one that is not for this voter, or makes no sense, is dropped.
func (l *Log) Step(from Voter, message []byte) {
	var m raftpb.Message
	if err := proto.Unmarshal(message, &m); err != nil || m.GetTo() != l.cfg.Self.ID || m.GetFrom() != from.ID {
		return
	}
	l.post(func() {
		l.known[from.ID] = from // a new voter must answer before it has the entry that names its leader
		_ = l.node.Step(&m)     // it says why it dropped the message, which the sender may repeat
	})
}

// Close ends this voter's part, as if it had died.
func (l *Log) Close() {
	select {
	case l.close <- struct{}{}:
	case <-l.done:
	}
	<-l.done
}

// Pass has another voter lead if this one does, and returns when it does not any more, or has tried for the time of Patience. Close
// follows: what is to be committed here meanwhile may never be.
func (l *Log) Pass() {
	limit := time.NewTimer(l.cfg.Patience)
	defer limit.Stop()
	over := make(chan struct{})
	l.post(func() { l.pass(over) })
	select {
	case <-over:
	case <-limit.C:
	case <-l.done:
	}
}

// pass hands the lead to the voter that has most of the log, and closes over when it has it.
func (l *Log) pass(over chan struct{}) {
	if l.reign == nil {
		close(over)
		return
	}
	l.passed = over
	heir, most := uint64(0), uint64(0)
	for id, p := range l.node.Status().Progress {
		if id != l.cfg.Self.ID && p.RecentActive && p.Match >= most {
			heir, most = id, p.Match
		}
	}
	if heir != 0 {
		l.node.TransferLeader(heir)
	}
}

func (l *Log) post(f func()) {
	select {
	case l.inbox <- f:
	case <-l.done:
	}
}

func (l *Log) run() {
	defer close(l.done)
	defer func() { l.depose() }()
	tick := time.NewTicker(l.cfg.Patience / ticksToElect)
	defer tick.Stop()
	for {
		l.advance()
		select {
		case f := <-l.inbox:
			f()
		case <-tick.C:
			l.node.Tick()
			l.reform()
		case <-l.close:
			return
		}
	}
}

// advance does what raft has decided: it keeps, sends and takes in.
func (l *Log) advance() {
	for l.node.HasReady() {
		rd := l.node.Ready()
		if !raft.IsEmptyHardState(rd.HardState) {
			must(l.storage.SetHardState(rd.HardState))
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
			l.reign.confirmed(s.RequestCtx)
		}
		l.node.Advance(rd)
	}
}

// must holds for a storage in memory: it fails only for an entry that is out of its order.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (l *Log) send(m *raftpb.Message) {
	b, err := proto.Marshal(m)
	must(err)
	if to, ok := l.known[m.GetTo()]; ok {
		l.cfg.Send(to, b)
	}
}

// apply takes in one committed entry.
func (l *Log) apply(e *raftpb.Entry) {
	if l.news && e.GetIndex() > l.after {
		l.voted()
	}
	switch {
	case e.GetType() != raftpb.EntryNormal:
		l.changed(e)
	case len(e.GetData()) > 0:
		l.entries = append(l.entries, e.GetData())
		l.reign.applied(e.GetTerm())
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
	case l.reign != nil:
		l.reign.changing = false
	default:
		l.reign = newReign(l, e.GetTerm())
		select {
		case <-l.reigns: // it is over
		default:
		}
		l.reigns <- l.reign
	}
}

func (l *Log) depose() {
	if l.reign == nil {
		return
	}
	close(l.reign.over)
	l.reign = nil
	if l.passed != nil {
		close(l.passed)
		l.passed = nil
	}
}
