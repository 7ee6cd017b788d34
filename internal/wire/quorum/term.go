package quorum

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Term is a time in which this voter leads. Its methods never block. Callbacks are called once, by
// the log's goroutine, and must not block; they may call any method.
type Term struct {
	// Past is what the log has from before the term.
	Past Past
	// Voters are the voters at the beginning of the term, and the nodes that are to become voters.
	// The leader comes first.
	Voters []Voter
	// Number is greater than the Number of any earlier term.
	Number uint64

	log  *Log
	over chan struct{}
	// The fields below belong to the log's goroutine.
	proposals proposals
	reads     reads
	// want are the voters that [Term.Reconfigure] was given, nil once they vote. changing says that
	// a change of voters is under way.
	want     []Voter
	changing bool
	// leaving has the callbacks for voters that want to leave.
	leaving []leaver
}

// leaver is called when the voter with a name is no longer needed.
type leaver struct {
	name string
	done func(error)
}

// ErrNotLeader says that this voter no longer leads. The entries that it proposed may or may not be
// in the log, now or later.
var ErrNotLeader = errors.New("another coordinator may lead")

// ErrFull says that the log has no room until a snapshot replaces its past. The entries are not in
// it.
var ErrFull = errors.New("the log is full")

func newTerm(l *Log, number uint64) *Term {
	return &Term{Past: l.past.get(), Voters: l.voters(), Number: number, log: l, over: make(chan struct{}), reads: reads{node: l.node, asked: map[uint64][]func(error){}}}
}

// Over returns a channel that is closed when this voter no longer leads.
func (t *Term) Over() <-chan struct{} { return t.over }

// Propose adds entries to the log, all or none. The error is nil when a majority of the voters has
// these entries and everything proposed before. After ErrNotLeader, no more entries can be added.
// The only other error is ErrFull.
func (t *Term) Propose(entries [][]byte, done func(error)) {
	var sealed [][]byte
	for _, e := range entries {
		sealed = append(sealed, seal(kindEntry, e))
	}
	t.post(done, func() { t.propose(sealed, done) })
}

// Snapshot replaces the past of the log, including all earlier proposals, by a state that stands
// for this past. A snapshot is proposed like an entry.
func (t *Term) Snapshot(state []byte, done func(error)) {
	sealed := seal(kindSnapshot, state)
	t.post(done, func() { t.propose([][]byte{sealed}, done) })
}

// Confirm checks that no other voter led at the time of the call. The error is nil or ErrNotLeader.
func (t *Term) Confirm(done func(error)) {
	t.post(done, func() {
		if t.log.term != t {
			done(ErrNotLeader)
			return
		}
		t.reads.add(done)
	})
}

// Reconfigure gives the log other voters. New voters first learn the log while the old voters vote,
// so nothing waits. Once a majority of the new voters has the log, the change does not wait for the
// rest. The leader stays a voter, because the others may need its vote before they know that it is
// gone. A leader that is to leave must transfer the lead.
func (t *Term) Reconfigure(voters []Voter) {
	voters = slices.Clone(voters)
	t.log.inbox.post(func() { t.want = voters })
}

// Release calls done when the voter with a name may leave: it does not vote, and is not about to
// vote. While the voter is among the voters given to [Term.Reconfigure], done is not called. The
// error is ErrNotLeader when another voter must decide.
func (t *Term) Release(name string, done func(error)) {
	t.post(done, func() {
		if t.log.term != t {
			done(ErrNotLeader)
			return
		}
		t.leaving = append(t.leaving, leaver{name, done})
	})
}

// release calls the callbacks of the voters that may leave. A voter may leave when no change that
// could make it vote is under way, and a majority knows the last change.
func (t *Term) release() {
	if t == nil || len(t.leaving) == 0 || t.changing || t.log.news.due || t.log.members.isChanging() {
		return
	}
	needed := slices.Concat(t.want, t.log.voters())
	t.leaving = slices.DeleteFunc(t.leaving, func(l leaver) bool {
		if slices.ContainsFunc(needed, func(v Voter) bool { return v.Name == l.name }) {
			return false
		}
		l.done(nil)
		return true
	})
}

func (t *Term) post(done func(error), f func()) {
	if !t.log.inbox.post(f) {
		go done(ErrNotLeader)
	}
}

func (t *Term) propose(sealed [][]byte, done func(error)) {
	size, m := 0, &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &t.log.cfg.Self.ID}
	for _, e := range sealed {
		size += sizeOf(e)
		m.Entries = append(m.Entries, &raftpb.Entry{Data: e})
	}
	switch {
	case t.log.term != t || t.proposals.lost:
		done(ErrNotLeader)
		return
	case !t.fits(sealed, size):
		done(ErrFull)
		return
	case len(sealed) > 0 && t.log.node.Step(m) != nil:
		t.proposals.lost = true // later entries depend on this one
		done(ErrNotLeader)
		return
	}
	t.proposals.add(len(sealed), size, done)
}

// fits reports whether there is room. A snapshot makes room for itself.
func (t *Term) fits(sealed [][]byte, size int) bool {
	if len(sealed) == 1 && sealed[0][0] == kindSnapshot {
		return size <= MaxSize
	}
	return size == 0 || t.log.past.size+t.proposals.pending+size <= MaxSize
}

// applied counts an entry. After the first entry of a term, all entries are from the term's leader,
// and they are committed in order.
func (t *Term) applied(sealed []byte) {
	if t == nil {
		return
	}
	t.proposals.applied(sizeOf(sealed))
}

// read asks for a read index, once for all callbacks that wait now.
func (t *Term) read() {
	if t != nil {
		t.reads.begin()
	}
}

func (t *Term) confirmed(read []byte) {
	if t != nil {
		t.reads.confirmed(read)
	}
}

func (t *Term) end() {
	close(t.over)
	t.proposals.end()
	t.reads.end()
	for _, l := range t.leaving {
		l.done(ErrNotLeader)
	}
}
