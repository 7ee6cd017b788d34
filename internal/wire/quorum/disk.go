package quorum

import (
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Disk keeps the data with which a voter starts again as the same voter: its ID, its votes and its
// part of the log.
type Disk interface {
	// Keep keeps a state, unless it is nil, and then the changes. The state replaces everything
	// that was kept before. Keep returns once all of this would survive a power failure. A voter
	// sends and does nothing that depends on unkept entries, so a voter whose disk hangs acts like
	// a lost voter.
	Keep(state []byte, changes [][]byte) error
}

// The first byte of a change says what it is.
const (
	changeEntry     byte = 'e'
	changeHardState byte = 'h'
)

// errKept says that a kept state is invalid.
var errKept = errors.New("the log of this voter is inconsistent")

// Resume continues as the voter that kept a state and later changes on its [Disk]. The ID of Self
// comes from the state.
func Resume(cfg Config, state []byte, changes [][]byte) (*Log, error) {
	l := newLog(cfg)
	if err := l.recall(state, changes); err != nil {
		return nil, err
	}
	return l, l.begin()
}

// recall restores the kept state. It refuses a state that would make Raft panic later.
func (l *Log) recall(state []byte, changes [][]byte) error {
	var m raftpb.Message
	if err := proto.Unmarshal(state, &m); err != nil || m.GetFrom() == 0 {
		return errKept
	}
	l.cfg.Self.ID = m.GetFrom()
	if past := m.GetSnapshot().GetMetadata(); past.GetIndex() > 0 {
		must(l.storage.ApplySnapshot(&raftpb.Snapshot{Metadata: past}))
		l.take(&m)
		l.members.conf = past.GetConfState()
	}
	last := l.past.index
	var hard *raftpb.HardState
	for i, c := range changes {
		switch {
		case len(c) == 0:
			return errKept
		case c[0] == changeHardState:
			hard = &raftpb.HardState{}
			if err := proto.Unmarshal(c[1:], hard); err != nil {
				return fmt.Errorf("%w: change %d: %w", errKept, i, err)
			}
		case c[0] == changeEntry:
			e := &raftpb.Entry{}
			if err := proto.Unmarshal(c[1:], e); err != nil || e.GetIndex() > last+1 || e.GetIndex() <= l.past.index {
				return fmt.Errorf("%w: change %d", errKept, i)
			}
			must(l.storage.Append([]*raftpb.Entry{e}))
			last = e.GetIndex()
		default:
			return fmt.Errorf("%w: change %d", errKept, i)
		}
	}
	if hard == nil {
		return nil
	}
	if hard.GetCommit() > last || hard.GetCommit() < l.past.index {
		return fmt.Errorf("%w: %d entries are committed, and %d are there", errKept, hard.GetCommit(), last)
	}
	must(l.storage.SetHardState(hard))
	return nil
}

// keep makes the disk keep the data that raft needs on the disk before anything else happens.
func (l *Log) keep(rd *raft.Ready) {
	if l.cfg.Disk == nil || l.failed != nil {
		return
	}
	var changes [][]byte
	for _, e := range rd.Entries {
		changes = append(changes, change(changeEntry, e))
	}
	if !raft.IsEmptyHardState(rd.HardState) { // the hard state is kept after the entries, because it may declare them committed
		changes = append(changes, change(changeHardState, rd.HardState))
	}
	if len(changes) > 0 {
		l.failed = l.cfg.Disk.Keep(nil, changes)
	}
}

// rewrite makes the disk replace everything by the present state.
func (l *Log) rewrite() {
	if l.cfg.Disk == nil || l.failed != nil {
		return
	}
	state, err := proto.Marshal(l.state())
	must(err)
	var changes [][]byte
	last, err := l.storage.LastIndex()
	must(err)
	if last > l.past.index {
		entries, err := l.storage.Entries(l.past.index+1, last+1, math.MaxUint64)
		must(err)
		for _, e := range entries {
			changes = append(changes, change(changeEntry, e))
		}
	}
	hard, _, err := l.storage.InitialState()
	must(err)
	if !raft.IsEmptyHardState(hard) {
		changes = append(changes, change(changeHardState, hard))
	}
	l.failed = l.cfg.Disk.Keep(state, changes)
}

// state returns the committed log, as a message with a snapshot.
func (l *Log) state() *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), From: new(l.cfg.Self.ID)}
	if l.past.index > 0 {
		l.fill(m)
	}
	return m
}

func change(kind byte, m proto.Message) []byte {
	b, err := proto.Marshal(m)
	must(err)
	return append([]byte{kind}, b...)
}
