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

// encode is the form of voters in a configuration change or a snapshot.
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

// peer is another voter, or is to be one, and the tick when it was last heard or heard of.
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

// proposeVoterChange proposes the next change on the way to the voters that the leader wants: new
// ones first learn the log; when they have it, they vote and the others go. A refused change is
// proposed again, because raft makes one at a time.
func (l *Log) proposeVoterChange() {
	t := l.term
	if t == nil || t.want == nil || t.changing || len(l.conf.GetVotersOutgoing()) > 0 {
		return
	}
	ids := map[uint64]bool{l.cfg.Self.ID: true}
	for _, v := range t.want {
		ids[v.ID] = true
	}
	changes := l.learnersToAdd(ids)
	if len(changes) == 0 {
		if changes = l.votersToChange(ids); len(changes) == 0 {
			t.want = nil
			return
		}
		if !l.ready(ids) {
			return
		}
	}
	t.changing = l.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: changes, Context: encode(t.want)}) == nil
}

// learnersToAdd are the changes that have new voters learn the log.
func (l *Log) learnersToAdd(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
	for id := range want {
		if !slices.Contains(l.conf.GetVoters(), id) && !slices.Contains(l.conf.GetLearners(), id) {
			changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, id))
		}
	}
	return changes
}

// votersToChange are the changes that have learners vote, and remove the others.
func (l *Log) votersToChange(want map[uint64]bool) (changes []*raftpb.ConfChangeSingle) {
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

// ready says that these voters have the log, but for messages under way, or that a majority has it
// and the others do not answer.
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

// voterChange applies a change of voters.
func (l *Log) voterChange(e *raftpb.Entry) {
	var change raftpb.ConfChangeV2
	must(proto.Unmarshal(e.GetData(), &change))
	l.learn(decode(change.GetContext()))
	l.reconfigured(l.node.ApplyConfChange(&change))
	if l.term != nil {
		l.term.changing = false
		l.term.repeatReads()
	}
}

// reconfigured stores the voters, announces them if they are others, and forgets those that are
// gone.
func (l *Log) reconfigured(conf *raftpb.ConfState) {
	l.conf = conf
	if len(conf.GetVotersOutgoing()) > 0 {
		return
	}
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	maps.DeleteFunc(l.known, func(id uint64, _ peer) bool { return !slices.Contains(members, id) })
	if !slices.Equal(l.announced, slices.Sorted(slices.Values(conf.GetVoters()))) {
		l.announce()
	}
}

// announce reports a change of voters. A leader first makes sure that others know it: a voter acts
// on a change when it hears that it is committed, which it does with the next entry of the leader;
// one of the majority that has that entry leads next.
func (l *Log) announce() {
	l.announced = slices.Sorted(slices.Values(l.conf.GetVoters()))
	l.announcing, l.after = true, 0
	if l.node.BasicStatus().RaftState != raft.StateLeader {
		l.tellVoters()
		return
	}
	last, err := l.storage.LastIndex()
	must(err)
	l.after = last
	_ = l.node.Propose(nil) // if it is dropped, another voter leads
}

func (l *Log) tellVoters() {
	l.announcing = false
	if l.cfg.VotersChanged != nil {
		l.cfg.VotersChanged(l.voters())
	}
}

// voters are those that keep the log now, this one first if it does.
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
