package quorum

import (
	"encoding/binary"
	"slices"
)

// Reign is a time in which this voter leads. Its methods are for one goroutine.
type Reign struct {
	// Past are the entries from before.
	Past [][]byte
	// Voters are those that vote when it begins, or are to, the one that leads first.
	Voters []Voter

	log  *Log
	term uint64
	over chan struct{}
	// What follows belongs to the log's goroutine: how many entries were proposed and taken in, and who waits for which, in order.
	proposed, taken, asked uint64
	waiting                []waiter
	reads                  map[uint64]chan struct{}
	want                   []Voter
	changing               bool
}

// waiter is told when the entry of a number is committed.
type waiter struct {
	number uint64
	done   chan struct{}
}

func newReign(l *Log, term uint64) *Reign {
	return &Reign{
		Past: slices.Clone(l.entries), Voters: l.voters(), log: l, term: term, over: make(chan struct{}), reads: map[uint64]chan struct{}{},
	}
}

// Over is closed when this voter leads no more.
func (r *Reign) Over() <-chan struct{} { return r.over }

// Commit adds entries to the log, none of them empty, and returns when a majority of the voters has them. Without entries it makes
// sure that no other voter led when it was called. The error is ErrOver.
func (r *Reign) Commit(entries ...[]byte) error {
	done := make(chan struct{})
	r.log.post(func() { r.commit(entries, done) })
	select {
	case <-done:
		return nil
	case <-r.over:
	}
	select {
	case <-done:
		return nil
	default:
		return ErrOver
	}
}

// Want has the log kept by other voters. This happens as soon as a majority of both the old and the new ones can agree to it.
func (r *Reign) Want(voters []Voter) {
	voters = slices.Clone(voters)
	r.log.post(func() {
		r.want = voters
		r.log.reform()
	})
}

func (r *Reign) commit(entries [][]byte, done chan struct{}) {
	if r.log.reign != r {
		return
	}
	if len(entries) == 0 {
		r.asked++
		r.reads[r.asked] = done
		r.ask(r.asked)
		return
	}
	for _, e := range entries {
		if err := r.log.node.Propose(e); err != nil {
			return // it has just lost the lead
		}
		r.proposed++
	}
	r.waiting = append(r.waiting, waiter{r.proposed, done})
}

func (r *Reign) ask(read uint64) { r.log.node.ReadIndex(binary.BigEndian.AppendUint64(nil, read)) }

// askAgain makes sure of what other voters were asked and cannot answer any more: raft waits for them when this one is alone by now.
func (r *Reign) askAgain() {
	for read := range r.reads {
		r.ask(read)
	}
}

// applied counts an entry of a term: only its leader proposes any, and they are committed in order.
func (r *Reign) applied(term uint64) {
	if r == nil || r.term != term {
		return
	}
	r.taken++
	for len(r.waiting) > 0 && r.waiting[0].number <= r.taken {
		close(r.waiting[0].done)
		r.waiting = r.waiting[1:]
	}
}

func (r *Reign) confirmed(read []byte) {
	if r == nil || len(read) != 8 {
		return
	}
	id := binary.BigEndian.Uint64(read)
	if done := r.reads[id]; done != nil {
		close(done)
		delete(r.reads, id)
	}
}
