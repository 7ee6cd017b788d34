package rpcframe

import (
	"fmt"
	"slices"
)

// The receiver sends an Ack after this number of frames, or of bytes in them.
const (
	ackFrames = 64
	ackBytes  = 64 << 10
)

// Replay has the data with which one end resumes after a connection has ended: the sent frames that
// the other end may not have, and the number of received frames.
//
// Each end counts the other end's frames over all connections of a worker's life, except Hello and
// Ack. A worker's Hello has the worker's count, and the controller answers with its own count in an
// Ack. Each end then repeats the frames that the other end does not have, so that every frame is
// received exactly once.
type Replay[Sent any] struct {
	unacked         []Sent
	acked, received uint64
	frames, bytes   int
}

// Resumed returns the Replay of an end that does not know the earlier frames. The other end has
// received the given number of earlier frames, and has sent no frame that counts.
func Resumed[Sent any](received uint64) *Replay[Sent] { return &Replay[Sent]{acked: received} }

// Sent keeps a frame, and returns its number.
func (r *Replay[Sent]) Sent(f Sent) uint64 {
	r.unacked = append(r.unacked, f)
	return r.acked + uint64(len(r.unacked))
}

// Unacked are the frames that the other end may not have.
func (r *Replay[Sent]) Unacked() []Sent { return slices.Clone(r.unacked) }

// Acked is how many frames the other end is known to have received. Received is how many this end
// has received.
func (r *Replay[Sent]) Acked() uint64    { return r.acked }
func (r *Replay[Sent]) Received() uint64 { return r.received }

// Acknowledge forgets the frames that the other end has received.
func (r *Replay[Sent]) Acknowledge(count uint64) error {
	if count < r.acked || count > r.acked+uint64(len(r.unacked)) {
		return fmt.Errorf("%w: the other end says that it received %d frames, and %d to %d were sent", ErrFrame, count, r.acked, r.acked+uint64(len(r.unacked)))
	}
	r.forget(int(count - r.acked))
	return nil
}

// Answered forgets the frames up to the answered frame.
func (r *Replay[Sent]) Answered(is func(Sent) bool) { r.forget(slices.IndexFunc(r.unacked, is) + 1) }

func (r *Replay[Sent]) forget(n int) {
	r.unacked, r.acked = slices.Delete(r.unacked, 0, n), r.acked+uint64(n)
}

// Take counts a frame from the other end, and reports whether an Ack is due.
func (r *Replay[Sent]) Take(f Frame) bool {
	r.received++
	r.frames++
	r.bytes += len(f.Body)
	return r.frames >= ackFrames || r.bytes >= ackBytes
}

// Ack says how many frames were received.
func (r *Replay[Sent]) Ack() Frame {
	r.frames, r.bytes = 0, 0
	return Frame{Kind: Ack, Codec: Raw, Call: r.received}
}
