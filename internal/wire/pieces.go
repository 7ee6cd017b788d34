package wire

import (
	"errors"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"
)

// pieces gathers elements into lists that each fit into a message. size returns the size of one
// element.
func pieces[E any](all iter.Seq[E], size func(E) int) iter.Seq[[]E] {
	return func(yield func([]E) bool) {
		var part []E
		sum := 0
		for e := range all {
			n := size(e) + 4
			if sum+n > MaxPiece && len(part) > 0 {
				if !yield(part) {
					return
				}
				part, sum = nil, 0
			}
			part, sum = append(part, e), sum+n
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

func sizeOf[M proto.Message](m M) int { return proto.Size(m) }

func length(s string) int { return len(s) }

// each converts the elements of a list one by one, on demand.
func each[A, B any](all []A, f func(A) B) iter.Seq[B] {
	return func(yield func(B) bool) {
		for _, a := range all {
			if !yield(f(a)) {
				return
			}
		}
	}
}

// flat yields the parts of each element, in order.
func flat[A, B any](all []A, parts func(A) iter.Seq[B]) iter.Seq[B] {
	return func(yield func(B) bool) {
		for _, a := range all {
			for b := range parts(a) {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// Put sends a request in several messages. If the stream ends meanwhile, the caller gets the error
// when it receives the answer.
func Put[M any](stream interface {
	Send(M) error
	CloseSend() error
}, all []M,
) error {
	for _, m := range all {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return stream.CloseSend()
}

// Take receives a request that comes in several messages.
func Take[M proto.Message](stream interface{ Recv() (M, error) }) (M, error) {
	all, err := stream.Recv()
	for size := 0; err == nil; {
		var more M
		if more, err = stream.Recv(); err != nil {
			break
		}
		if size += proto.Size(more); size > MaxRequest {
			return all, Wrong("the request has more than %d bytes", MaxRequest)
		}
		proto.Merge(all, more)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}
