package quorum

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Message is a message for another voter.
type Message struct {
	To  Voter
	log *Log
	m   *raftpb.Message
}

func (l *Log) send(m *raftpb.Message) {
	to, ok := l.members.known[m.GetTo()]
	if !ok {
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		l.fill(m)
	}
	l.cfg.Send(Message{to.Voter, l, m})
}

// Bulk says that a message has entries and may be long. Bulk messages for one voter should arrive
// in order. Other messages, such as heartbeats, must not wait for them.
func (m Message) Bulk() bool {
	return m.m.GetType() == raftpb.MsgApp || m.m.GetType() == raftpb.MsgSnap
}

// Size is the number of Bytes.
func (m Message) Size() int { return proto.Size(m.m) }

// Bytes is the input of the other voter's [Log.Step].
func (m Message) Bytes() []byte {
	b, err := proto.Marshal(m.m)
	must(err)
	return b
}

// Done tells raft that a message has probably arrived, or why it has not. While a snapshot is on
// its way to a voter, the leader sends that voter nothing else until Done is called.
func (m Message) Done(err error) {
	switch {
	case m.m.GetType() == raftpb.MsgSnap:
		status := raft.SnapshotFinish
		if err != nil {
			status = raft.SnapshotFailure
		}
		m.log.inbox.post(func() { m.log.node.ReportSnapshot(m.To.ID, status) })
	case m.m.GetType() == raftpb.MsgApp && err != nil:
		m.log.inbox.post(func() { m.log.node.ReportUnreachable(m.To.ID) })
	}
}
