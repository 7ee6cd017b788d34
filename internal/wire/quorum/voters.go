package quorum

import (
	"encoding/json"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// encode returns voters in the form for a configuration change or a snapshot.
func encode(voters []Voter) []byte {
	b, err := json.Marshal(voters)
	must(err)
	return b
}

func decode(text []byte) (voters []Voter) {
	if len(text) > 0 {
		must(json.Unmarshal(text, &voters))
	}
	return voters
}

// peer is another voter, present or future, with the tick when this voter last heard from the peer
// or of it.
type peer struct {
	Voter
	heard int
}

// members are the present and future voters that one voter of a log knows.
type members struct {
	known map[uint64]peer
	conf  *raftpb.ConfState
	// now counts ticks.
	now int
}

func (m *members) learn(voters []Voter) {
	for _, v := range voters {
		if _, ok := m.known[v.ID]; !ok {
			m.heard(v)
		}
	}
}

func (m *members) heard(v Voter) { m.known[v.ID] = peer{v, m.now} }

// silence is the number of ticks since a voter was last heard.
func (m *members) silence(id uint64) int { return m.now - m.known[id].heard }

// isChanging reports whether a change of voters is incomplete, so that old and new voters vote.
func (m *members) isChanging() bool { return len(m.conf.GetVotersOutgoing()) > 0 }

// set stores the voters. Once a change is complete, it forgets the removed voters.
func (m *members) set(conf *raftpb.ConfState) {
	if m.conf = conf; m.isChanging() {
		return
	}
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	maps.DeleteFunc(m.known, func(id uint64, _ peer) bool { return !slices.Contains(members, id) })
}

// ids returns the IDs of the voters, in order.
func (m *members) ids() []uint64 { return slices.Sorted(slices.Values(m.conf.GetVoters())) }

// voters returns the voters that keep the log now. If the voter with the given ID is one of them,
// it comes first.
func (m *members) voters(self uint64) []Voter {
	var voters []Voter
	for _, id := range m.conf.GetVoters() {
		voters = append(voters, m.known[id].Voter)
	}
	slices.SortStableFunc(voters, func(a, b Voter) int {
		switch self {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return 0
	})
	return voters
}

// learnersToAdd returns the changes that let new voters learn the log.
func (m *members) learnersToAdd(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
	for id := range want {
		if !slices.Contains(m.conf.GetVoters(), id) && !slices.Contains(m.conf.GetLearners(), id) {
			changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, id))
		}
	}
	return changes
}

// votersToChange returns the changes that let learners vote, and remove the old voters.
func (m *members) votersToChange(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
	for _, id := range m.conf.GetLearners() {
		if want[id] {
			changes = append(changes, single(raftpb.ConfChangeAddNode, id))
		}
	}
	for _, id := range slices.Concat(m.conf.GetVoters(), m.conf.GetLearners()) {
		if !want[id] {
			changes = append(changes, single(raftpb.ConfChangeRemoveNode, id))
		}
	}
	return changes
}

// proposeVoterChange proposes the next change on the way to the voters that the leader wants. New
// voters first learn the log. When they have the log, they vote, and the old voters are removed. A
// refused change is proposed again, because raft makes one change at a time.
func (l *Log) proposeVoterChange() {
	t := l.term
	if t == nil || t.want == nil || t.changing || l.members.isChanging() {
		return
	}
	ids := map[uint64]bool{l.cfg.Self.ID: true}
	for _, v := range t.want {
		ids[v.ID] = true
	}
	changes := l.members.learnersToAdd(ids)
	if len(changes) == 0 {
		if changes = l.members.votersToChange(ids); len(changes) == 0 {
			t.want = nil
			return
		}
		if !l.ready(ids) {
			return
		}
	}
	t.changing = l.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: changes, Context: encode(t.want)}) == nil
}

func single(what raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: what.Enum(), NodeId: &id}
}

// ready reports whether these voters have the log, except for messages under way. It suffices that
// a majority has the log, if the other voters do not answer.
func (l *Log) ready(want map[uint64]bool) bool {
	now, have := l.node.Status(), 0
	for id, p := range now.Progress {
		switch {
		case !want[id]:
		case !p.IsLearner || p.State == tracker.StateReplicate && p.Match+maxInflight >= now.GetCommit():
			have++
		case l.members.silence(id) < ticksToElect:
			return false
		}
	}
	return 2*have > len(want)
}

// voterChange applies a change of voters.
func (l *Log) voterChange(e *raftpb.Entry) {
	var change raftpb.ConfChangeV2
	must(proto.Unmarshal(e.GetData(), &change))
	l.members.learn(decode(change.GetContext()))
	l.reconfigured(l.node.ApplyConfChange(&change))
	if l.term != nil {
		l.term.changing = false
		l.term.reads.repeat()
	}
}

// reconfigured stores the voters, and announces them if they have changed.
func (l *Log) reconfigured(conf *raftpb.ConfState) {
	l.members.set(conf)
	if !l.members.isChanging() && !slices.Equal(l.news.voters, l.members.ids()) {
		l.announce()
	}
}

// announcement is the change that VotersChanged was or will be called with.
type announcement struct {
	voters []uint64
	// due says that VotersChanged must still be called, once an entry after the given one is
	// committed.
	due   bool
	after uint64
}

// isKnown reports whether enough voters know a due announcement once the entry with an index is
// committed.
func (a *announcement) isKnown(index uint64) bool { return a.due && index > a.after }

// announce reports a change of voters. A leader first makes sure that other voters know the change.
// A voter acts on a change when it learns, from the leader's next entry, that the change is
// committed. The next leader is one of the majority that has this entry.
func (l *Log) announce() {
	l.news = announcement{voters: l.members.ids(), due: true}
	if l.node.BasicStatus().RaftState != raft.StateLeader {
		l.tellVoters()
		return
	}
	last, err := l.storage.LastIndex()
	must(err)
	l.news.after = last
	_ = l.node.Propose(nil) // if the proposal is dropped, another voter leads
}

func (l *Log) tellVoters() {
	l.news.due = false
	if l.cfg.VotersChanged != nil {
		l.cfg.VotersChanged(l.voters())
	}
}

// voters returns the voters that keep the log now. If this voter is one of them, it comes first.
func (l *Log) voters() []Voter { return l.members.voters(l.cfg.Self.ID) }
