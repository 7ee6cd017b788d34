package quorum

import (
	"encoding/json"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// encode is what a change of voters tells of those that it adds.
func encode(voters []Voter) []byte {
	b, err := json.Marshal(voters)
	must(err)
	return b
}

// reform asks for the change to the voters that the leader wants. It is asked again when it was refused: raft makes one at a time.
func (l *Log) reform() {
	r := l.reign
	if r == nil || r.want == nil || r.changing || len(l.conf.GetVotersOutgoing()) > 0 {
		return
	}
	change := &raftpb.ConfChangeV2{Context: encode(r.want)}
	for _, v := range r.want {
		if !slices.Contains(l.conf.GetVoters(), v.ID) {
			change.Changes = append(change.Changes, single(raftpb.ConfChangeAddNode, v.ID))
		}
	}
	for _, id := range l.conf.GetVoters() {
		if !slices.ContainsFunc(r.want, func(v Voter) bool { return v.ID == id }) {
			change.Changes = append(change.Changes, single(raftpb.ConfChangeRemoveNode, id))
		}
	}
	if len(change.Changes) > 0 {
		r.changing = l.node.ProposeConfChange(change) == nil
	}
}

func single(what raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: what.Enum(), NodeId: &id}
}

// changed takes in a change of voters.
func (l *Log) changed(e *raftpb.Entry) {
	var change raftpb.ConfChangeV2
	if e.GetType() == raftpb.EntryConfChange { // the founder's
		var first raftpb.ConfChange
		must(proto.Unmarshal(e.GetData(), &first))
		change = raftpb.ConfChangeV2{Context: first.GetContext(), Changes: first.AsV2().GetChanges()}
	} else {
		must(proto.Unmarshal(e.GetData(), &change))
	}
	if text := change.GetContext(); len(text) > 0 {
		var voters []Voter
		must(json.Unmarshal(text, &voters))
		for _, v := range voters {
			l.known[v.ID] = v
		}
	}
	l.conf = l.node.ApplyConfChange(&change)
	if l.reign != nil {
		l.reign.changing = false
		l.reign.askAgain()
	}
	if len(l.conf.GetVotersOutgoing()) == 0 {
		l.announce()
	}
}

// announce has Voted hear of a change, of which a leader first makes sure that others know it. A voter goes by it when it has heard that
// it is committed, which it has with any entry that the leader adds from now on; of a majority that has that entry, one leads next.
func (l *Log) announce() {
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
		voters = append(voters, l.known[id])
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
