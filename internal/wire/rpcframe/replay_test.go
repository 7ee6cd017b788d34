package rpcframe_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// TestReplay checks that each frame is received once and in order, over connections that break at
// any frame.
func TestReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var sender, receiver rpcframe.Replay[rpcframe.Frame]
	var got []uint64
	receive := func(f rpcframe.Frame) {
		got = append(got, f.Call)
		if receiver.Take(f) {
			ack := receiver.Ack()
			if r.IntN(3) == 0 { // lost with its connection
				return
			}
			if err := sender.Acknowledge(ack.Call); err != nil {
				t.Fatal(err)
			}
		}
	}
	const frames = 5000
	for next := uint64(1); next <= frames || len(sender.Unacked()) > 0; {
		if err := sender.Acknowledge(receiver.Received()); err != nil { // a connection begins
			t.Fatal(err)
		}
		for _, f := range sender.Unacked() {
			receive(f)
		}
		for range r.IntN(200) {
			if next > frames {
				break
			}
			f := rpcframe.Frame{Kind: rpcframe.Call, Call: next, Body: make([]byte, r.IntN(2000))}
			if n := sender.Sent(f); n != next {
				t.Fatalf("frame %d has the number %d", next, n)
			}
			next++
			if r.IntN(100) == 0 { // sent into a connection that has broken
				break
			}
			receive(f)
		}
	}
	if want := slices.Collect(func(yield func(uint64) bool) {
		for n := range uint64(frames) {
			if !yield(n + 1) {
				return
			}
		}
	}); !slices.Equal(got, want) {
		t.Errorf("%d frames were received, want %d in order", len(got), frames)
	}
	for _, count := range []uint64{frames - 1, frames + 1} {
		if err := sender.Acknowledge(count); !errors.Is(err, rpcframe.ErrFrame) {
			t.Errorf("%d: %v", count, err)
		}
	}
}

// TestAnswered checks that an answer to a call proves that everything up to the call has arrived.
func TestAnswered(t *testing.T) {
	r := rpcframe.Resumed[int](7)
	for n := range 3 {
		if number := r.Sent(n); number != uint64(8+n) {
			t.Errorf("number %d", number)
		}
	}
	r.Answered(func(n int) bool { return n == 1 })
	r.Answered(func(n int) bool { return n == 0 })
	if !slices.Equal(r.Unacked(), []int{2}) || r.Acked() != 9 {
		t.Errorf("%v after %d", r.Unacked(), r.Acked())
	}
}
