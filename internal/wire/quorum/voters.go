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

// encode is what a change of voters, or a snapshot, tells of them.
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

// peer is another voter, or is to be one, and when it was last heard or heard of, in ticks.
type peer struct {
	Voter
	heard int
}

func (l *Log) learn(voters []Voter) {
	for _, v := range voters {
		if _, ok := l.known[v.ID]; !ok {
			l.known[v.ID] = peer{v, l.now}
		}
	}
}

// reform asks for the next change on the way to the voters that the leader wants: first new ones learn the log, and then, when they have
// it, they vote and the others go. It is asked again when it was refused: raft makes one at a time.
func (l *Log) reform() {
	t := l.term
	if t == nil || t.want == nil || t.changing || len(l.conf.GetVotersOutgoing()) > 0 {
		return
	}
	ids := map[uint64]bool{l.cfg.Self.ID: true}
	for _, v := range t.want {
		ids[v.ID] = true
	}
	changes := l.introductions(ids)
	if len(changes) == 0 {
		if changes = l.succession(ids); len(changes) == 0 {
			t.want = nil
			return
		}
		if !l.ready(ids) {
			return
		}
	}
	t.changing = l.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: changes, Context: encode(t.want)}) == nil
}

// introductions have those learn the log that do not have it.
func (l *Log) introductions(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
	for id := range want {
		if !slices.Contains(l.conf.GetVoters(), id) && !slices.Contains(l.conf.GetLearners(), id) {
			changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, id))
		}
	}
	return changes
}

// succession has those vote that learn the log, and the others go.
func (l *Log) succession(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
	for _, id := range l.conf.GetLearners() {
		if want[id] {
			changes = append(changes, single(raftpb.ConfChangeAddNode, id))
		}
	}
	for _, id := range slices.Concat(l.conf.GetVoters(), l.conf.GetLearners()) {
		if !want[id] {
			changes = append(changes, single(raftpb.ConfChangeRemoveNode, id))
		}
	}
	return changes
}

func single(what raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: what.Enum(), NodeId: &id}
}

// ready says that these voters have the log, but for what may be on its way, or that a majority has it and the others do not answer.
func (l *Log) ready(want map[uint64]bool) bool {
	now, have := l.node.Status(), 0
	for id, p := range now.Progress {
		switch {
		case !want[id]:
		case !p.IsLearner || p.State == tracker.StateReplicate && p.Match+maxInflight >= now.GetCommit():
			have++
		case l.now-l.known[id].heard < ticksToElect:
			return false
		}
	}
	return 2*have > len(want)
}

// changed takes in a change of voters.
func (l *Log) changed(e *raftpb.Entry) {
	var change raftpb.ConfChangeV2
	must(proto.Unmarshal(e.GetData(), &change))
	l.learn(decode(change.GetContext()))
	l.reconfigured(l.node.ApplyConfChange(&change))
	if l.term != nil {
		l.term.changing = false
		l.term.askAgain()
	}
}

// reconfigured has Voted hear who votes now, if those are others. Who is gone is forgotten.
func (l *Log) reconfigured(conf *raftpb.ConfState) {
	l.conf = conf
	if len(conf.GetVotersOutgoing()) > 0 {
		return
	}
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	maps.DeleteFunc(l.known, func(id uint64, _ peer) bool { return !slices.Contains(members, id) })
	if !slices.Equal(l.told, slices.Sorted(slices.Values(conf.GetVoters()))) {
		l.announce()
	}
}

// announce has Voted hear of a change, of which a leader first makes sure that others know it. A voter goes by it when it has heard that
// it is committed, which it has with any entry that the leader adds from now on; of a majority that has that entry, one leads next.
func (l *Log) announce() {
	l.told = slices.Sorted(slices.Values(l.conf.GetVoters()))
	l.news, l.after = true, 0
	if l.node.BasicStatus().RaftState != raft.StateLeader {
		l.voted()
		return
	}
	last, err := l.storage.LastIndex()
	must(err)
	l.after = last
	_ = l.node.Propose(nil) // where it is dropped there is another leader
}

func (l *Log) voted() {
	l.news = false
	if l.cfg.Voted != nil {
		l.cfg.Voted(l.voters())
	}
}

// voters are those that keep the log now, this one first if it is one.
func (l *Log) voters() []Voter {
	var voters []Voter
	for _, id := range l.conf.GetVoters() {
		voters = append(voters, l.known[id].Voter)
	}
	slices.SortStableFunc(voters, func(a, b Voter) int {
		switch l.cfg.Self.ID {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return 0
	})
	return voters
}
