package quorum

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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
		if l.advance(); l.failed != nil {
			return
		}
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
			l.now++
			l.node.Tick()
			l.retain()
			l.doubt()
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
	l.known[m.from.ID] = peer{m.from, l.now} // a new voter must answer before it has the entry that names its leader
	defer l.trust(m.from)
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
	for l.reform(); l.failed == nil && l.node.HasReady(); l.reform() {
		rd := l.node.Ready()
		if !raft.IsEmptyHardState(rd.HardState) {
			must(l.storage.SetHardState(rd.HardState))
		}
		if !raft.IsEmptySnap(rd.Snapshot) {
			must(l.storage.ApplySnapshot(rd.Snapshot))
			l.restore(rd.Snapshot)
		}
		must(l.storage.Append(rd.Entries))
		if l.keep(&rd); l.failed != nil {
			return
		}
		l.follow(rd.SoftState)
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
	l.term.release()
}

// follow notes who leads.
func (l *Log) follow(now *raft.SoftState) {
	switch {
	case now == nil:
	case now.Lead == raft.None:
		l.lead(Voter{})
	case now.Lead == l.cfg.Self.ID:
		l.lead(l.cfg.Self)
	default:
		l.lead(l.known[now.Lead].Voter)
	}
}

// doubt notes that the leader is silent, long before there is an election.
func (l *Log) doubt() {
	if v := l.Leader(); v.ID != 0 && v.ID != l.cfg.Self.ID && l.now-l.known[v.ID].heard > ticksToDoubt {
		l.lead(Voter{})
	}
}

// trust notes that the leader is heard again.
func (l *Log) trust(v Voter) {
	if l.Leader().ID == 0 && l.node.BasicStatus().Lead == v.ID {
		l.lead(v)
	}
}

func (l *Log) lead(v Voter) {
	if l.Leader() == v {
		return
	}
	if l.leader.Store(&v); l.cfg.Led != nil {
		l.cfg.Led()
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
