package quorum

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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
		case m := <-l.inbox.steps:
			l.step(m)
			for range len(l.inbox.steps) {
				l.step(<-l.inbox.steps)
			}
		case <-l.inbox.wake:
			l.inbox.callPosted()
		case <-tick.C:
			l.members.now++
			l.node.Tick()
			l.checkTransfer()
			l.noteSilentLeader()
		case <-l.inbox.closing:
			return
		}
	}
}

// end calls all callbacks that still wait.
func (l *Log) end() {
	l.depose()
	l.inbox.end()
}

// step handles one message. The state in a message with a snapshot is kept here until Raft has
// accepted the message. Raft itself does not use the state.
func (l *Log) step(m *step) {
	l.members.heard(m.from) // a new voter must answer before it has the entry that names its leader
	defer l.noteLeaderHeard(m.from)
	if m.GetType() != raftpb.MsgSnap {
		_ = l.node.Step(m.Message) // an error means that the message was dropped; the sender may repeat it
		return
	}
	l.incoming = m.Message
	_ = l.node.Step(m.Message) // as above
	l.advance()
	l.incoming = nil
}

// advance carries out raft's decisions: it keeps, sends and applies.
func (l *Log) advance() {
	l.term.read()
	for l.proposeVoterChange(); l.failed == nil && l.node.HasReady(); l.proposeVoterChange() {
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
		l.noteLeader(rd.SoftState)
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

// noteLeader stores which voter leads.
func (l *Log) noteLeader(now *raft.SoftState) {
	switch {
	case now == nil:
	case now.Lead == raft.None:
		l.setLeader(Voter{})
	case now.Lead == l.cfg.Self.ID:
		l.setLeader(l.cfg.Self)
	default:
		l.setLeader(l.members.known[now.Lead].Voter)
	}
}

// noteSilentLeader notes that the leader is silent, long before an election.
func (l *Log) noteSilentLeader() {
	if v := l.Leader(); v.ID != 0 && v.ID != l.cfg.Self.ID && l.members.silence(v.ID) > ticksToDoubt {
		l.setLeader(Voter{})
	}
}

// noteLeaderHeard notes a message of the leader, which may have been silent.
func (l *Log) noteLeaderHeard(v Voter) {
	if l.node.BasicStatus().Lead != v.ID {
		return
	}
	if l.Leader().ID == 0 {
		l.setLeader(v)
	}
	if l.cfg.LeaderHeard != nil {
		l.cfg.LeaderHeard()
	}
}

func (l *Log) setLeader(v Voter) {
	if l.Leader() == v {
		return
	}
	if l.view.leader.Store(&v); l.cfg.LeaderChanged != nil {
		l.cfg.LeaderChanged()
	}
}

// must checks an error of the storage in memory, which fails only for an entry out of order.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// apply applies a committed entry.
func (l *Log) apply(e *raftpb.Entry) {
	l.past.index = e.GetIndex()
	if l.news.isKnown(e.GetIndex()) {
		l.tellVoters()
	}
	switch {
	case e.GetType() != raftpb.EntryNormal:
		l.voterChange(e)
	case len(e.GetData()) > 0:
		l.past.add(e.GetData())
		l.term.applied(e.GetData())
	default:
		l.emptyEntry(e)
	}
}

// emptyEntry handles an empty entry. The first empty entry of a term is from the term's leader,
// which now knows everything that was committed before. A later one stands for a refused change of
// voters, or follows a completed change.
func (l *Log) emptyEntry(e *raftpb.Entry) {
	now := l.node.BasicStatus()
	switch {
	case now.RaftState != raft.StateLeader || now.GetTerm() != e.GetTerm():
	case l.term != nil:
		l.term.changing = false
	default:
		l.term = newTerm(l, e.GetTerm())
		select {
		case <-l.terms: // the old term is over
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
