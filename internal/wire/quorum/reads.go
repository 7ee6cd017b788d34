package quorum

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
)

// reads check, by Raft's read index, that no other voter led at the time of a question.
type reads struct {
	node *raft.RawNode
	// unread are the callbacks that wait for the next request. asked are, by the number of the
	// request, the callbacks that wait for an answer. last is the newest number.
	unread []func(error)
	asked  map[uint64][]func(error)
	last   uint64
}

func (r *reads) add(done func(error)) { r.unread = append(r.unread, done) }

// begin makes one request for all callbacks that wait now.
func (r *reads) begin() {
	if len(r.unread) == 0 {
		return
	}
	r.last++
	r.asked[r.last], r.unread = r.unread, nil
	r.ask(r.last)
}

func (r *reads) ask(read uint64) { r.node.ReadIndex(binary.BigEndian.AppendUint64(nil, read)) }

// repeat repeats requests that removed voters can no longer answer. Without that, raft would wait
// for their answers.
func (r *reads) repeat() {
	for read := range r.asked {
		r.ask(read)
	}
}

func (r *reads) confirmed(read []byte) {
	if len(read) != 8 {
		return
	}
	id := binary.BigEndian.Uint64(read)
	for _, done := range r.asked[id] {
		done(nil)
	}
	delete(r.asked, id)
}

func (r *reads) end() {
	for _, asked := range r.asked {
		r.unread = append(r.unread, asked...)
	}
	for _, done := range r.unread {
		done(ErrNotLeader)
	}
}
