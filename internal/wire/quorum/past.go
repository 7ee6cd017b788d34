package quorum

import (
	"go.etcd.io/raft/v3/raftpb"
)

// MaxSize bounds a log: its snapshot and the entries after it, in bytes, with some overhead for
// each entry. MaxMessage bounds a message for [Log.Step], in bytes. A whole log fits.
const (
	MaxSize    = 256 << 20
	MaxMessage = MaxSize + 1<<20
)

// overhead is more than an entry needs beyond its own bytes, in memory or in a message.
const overhead = 64

func sizeOf(entry []byte) int { return len(entry) + overhead }

// The first byte of an entry of the log says what the entry is.
const (
	kindEntry byte = iota
	kindSnapshot
)

func seal(kind byte, data []byte) []byte { return append([]byte{kind}, data...) }

// Past is what a log has: a snapshot, nil if there is none, and the entries after it.
type Past struct {
	Snapshot []byte
	Entries  [][]byte
}

// past is the log that a voter knows to be committed, up to the entry with an index.
type past struct {
	index uint64
	// sealed has the entries with their kind, from the latest snapshot on. Raft shares the bytes.
	sealed [][]byte
	size   int
	// snapped says that a snapshot was applied, so that raft can forget earlier entries.
	snapped bool
}

func (p *past) add(sealed []byte) {
	if sealed[0] == kindSnapshot {
		p.sealed, p.size, p.snapped = nil, 0, true
	}
	p.sealed = append(p.sealed, sealed)
	p.size += sizeOf(sealed)
}

func (p *past) get() (all Past) {
	for _, e := range p.sealed {
		if e[0] == kindSnapshot {
			all.Snapshot = e[1:]
		} else {
			all.Entries = append(all.Entries, e[1:])
		}
	}
	return all
}

// metadata returns the facts that raft needs about a log up to the last applied entry, which has
// the given term.
func (l *Log) metadata(term uint64) *raftpb.SnapshotMetadata {
	return &raftpb.SnapshotMetadata{Index: new(l.past.index), Term: &term, ConfState: l.members.conf}
}

// compact makes raft forget the entries that a snapshot replaces. It keeps no entries for voters
// that are a bit behind, because these voters lack the snapshot too, and get the whole log.
func (l *Log) compact() {
	if !l.past.snapped {
		return
	}
	l.past.snapped = false
	_, err := l.storage.CreateSnapshot(l.past.index, l.members.conf, nil)
	must(err)
	must(l.storage.Compact(l.past.index))
	l.rewrite()
}

// fill puts the log into a message with a snapshot. As in etcd, this is the present log. A receiver
// that was not a voter at the last compaction would refuse the log of that time. The log is in the
// entries of the message, which raft does not copy.
func (l *Log) fill(m *raftpb.Message) {
	term, err := l.storage.Term(l.past.index)
	must(err)
	var known []Voter
	for _, p := range l.members.known {
		known = append(known, p.Voter)
	}
	m.Snapshot = &raftpb.Snapshot{Data: encode(known), Metadata: l.metadata(term)}
	for _, e := range l.past.sealed {
		m.Entries = append(m.Entries, &raftpb.Entry{Data: e})
	}
}

// restore adopts the log of the snapshot message that raft has just accepted.
func (l *Log) restore(s *raftpb.Snapshot) {
	l.take(l.incoming)
	l.view.begun.Store(true)
	l.reconfigured(s.GetMetadata().GetConfState())
	l.rewrite()
}

// take adopts the committed log in a message with a snapshot.
func (l *Log) take(m *raftpb.Message) {
	l.past = past{index: m.GetSnapshot().GetMetadata().GetIndex()}
	for _, e := range m.GetEntries() {
		l.past.add(e.GetData())
	}
	l.past.snapped = false // raft has no other entries
	l.members.learn(decode(m.GetSnapshot().GetData()))
}
