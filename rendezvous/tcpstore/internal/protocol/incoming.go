package protocol

import "bytes"

// Incoming is the received part of a client's incomplete request.
type Incoming struct {
	Held []byte
	// Need is the length that the request must reach before another call of Scan is useful.
	Need    int
	scanner scanner
}

const (
	// ReadBuffer is the size of the buffer that all clients share, in bytes.
	ReadBuffer = 64 << 10
	// FirstChunk bounds the memory, in bytes, that a long request gets before its bytes arrive,
	// whatever length it claims. Each further chunk is at most Growth times as long as the data
	// that has arrived.
	FirstChunk = 2 * ReadBuffer
	Growth     = 4
)

// Room returns the buffer to read into. The bytes that are held come first in the buffer. Room
// returns the client's own buffer if the request needs more than the shared buffer.
func (r *Incoming) Room(shared []byte) (into []byte, own bool) {
	if r.Need <= ReadBuffer {
		copy(shared, r.Held)
		return shared, false
	}
	size := max(FirstChunk, Growth*len(r.Held))
	if !r.scanner.shape.list { // Need does not cover the next field of a list
		size = chunk(r.Need, size)
	}
	if len(r.Held) == cap(r.Held) || cap(r.Held) < min(size, FirstChunk) {
		grown := make([]byte, len(r.Held), size)
		copy(grown, r.Held)
		r.Held = grown
	}
	return r.Held[:cap(r.Held)], true
}

// chunk repeatedly divides need by Growth until the result is within the limit. So the last chunk
// has exactly the needed length, and is about Growth times as long as the chunk before. All chunks
// together are less than 1.4 times need.
func chunk(need, limit int) int {
	for need > limit {
		need = (need + Growth - 1) / Growth
	}
	return need
}

// Hold keeps the rest of the data. own says that the rest is in a buffer from Room. anew says that
// a request before the rest was answered.
func (r *Incoming) Hold(rest []byte, own, anew bool) {
	switch {
	case len(rest) == 0:
		r.Held = nil
	case !own:
		r.Held = append(r.Held[:0], rest...)
	case anew:
		r.Held = bytes.Clone(rest) // a stored value may use the same memory
	default:
		r.Held = rest
	}
}

// Scan looks for the end of a request. b has all bytes of the request so far. Scan returns the
// length of the request, or 0 if the request is incomplete.
func (r *Incoming) Scan(op byte, b []byte) (n int, err error) {
	if r.scanner.at == 0 {
		r.scanner.begin(op)
	}
	if r.Need, err = r.scanner.scan(b); err != nil || r.Need > 0 {
		return 0, err
	}
	n = r.scanner.at
	r.scanner = scanner{}
	return n, nil
}
