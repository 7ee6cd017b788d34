package tcpstore

import "bytes"

// incoming is what has come of a client's incomplete request.
type incoming struct {
	held []byte
	// need is the length at which it is worth scanning again.
	need    int
	scanner scanner
}

const (
	// firstChunk is the most memory, in bytes, that a long request gets before its bytes arrive,
	// whatever length it claims. Each further chunk is at most growth times what has arrived.
	firstChunk = 2 * readBuffer
	growth     = 4
)

// room returns the buffer to read into, behind what is held. It is the client's own if the request
// needs more than the shared buffer.
func (r *incoming) room(shared []byte) (into []byte, own bool) {
	if r.need <= readBuffer {
		copy(shared, r.held)
		return shared, false
	}
	size := max(firstChunk, growth*len(r.held))
	if !r.scanner.shape.list { // need does not cover the next field of a list
		size = chunk(r.need, size)
	}
	if len(r.held) == cap(r.held) || cap(r.held) < min(size, firstChunk) {
		grown := make([]byte, len(r.held), size)
		copy(grown, r.held)
		r.held = grown
	}
	return r.held[:cap(r.held)], true
}

// chunk repeatedly divides need by growth until it is within the limit. The last chunk is then
// exactly what is needed, not a few bytes more than the one before, and all chunks together are
// less than 1.4 times need.
func chunk(need, limit int) int {
	for need > limit {
		need = (need + growth - 1) / growth
	}
	return need
}

// hold keeps what remains of the data. own says that it is in a buffer from room, and anew that a
// request before it was answered.
func (r *incoming) hold(rest []byte, own, anew bool) {
	switch {
	case len(rest) == 0:
		r.held = nil
	case !own:
		r.held = append(r.held[:0], rest...)
	case anew:
		r.held = bytes.Clone(rest) // a stored value may have the memory
	default:
		r.held = rest
	}
}

// scan continues with the bytes of a request so far, and returns its length, or 0 if it is
// incomplete.
func (r *incoming) scan(op byte, b []byte) (n int, err error) {
	if r.scanner.at == 0 {
		r.scanner.begin(op)
	}
	if r.need, err = r.scanner.scan(b); err != nil || r.need > 0 {
		return 0, err
	}
	n = r.scanner.at
	r.scanner = scanner{}
	return n, nil
}
