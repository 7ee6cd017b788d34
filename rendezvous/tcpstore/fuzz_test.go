package tcpstore

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// lone is a store with one client. The test's goroutine runs both.
type lone struct {
	t      *testing.T
	loop   *loop
	client int
	// replies is what the client has received. end says why the store disconnected the client; it
	// is empty while the client is connected.
	replies []byte
	end     string
}

func newLone(t *testing.T) *lone {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(t, err)
	o := &lone{t: t}
	warn := func(err error) { _, o.end, _ = strings.Cut(err.Error(), " disconnected ") }
	o.loop, err = newLoop(l, Options{MaxBytes: 1 << 30, Patience: patience, Warn: warn}, nil)
	ok(t, err)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	ok(t, err)
	o.client = ends[1]
	o.loop.admit(ends[0], nil)
	return o
}

// send sends data in pieces. It sends the next piece only after the store has answered the last
// one.
func (o *lone) send(data []byte, piece int) {
	for sent := 0; len(data) > 0 && len(o.loop.conns) > 0; {
		n, err := unix.Write(o.client, data[:min(piece, len(data))])
		ok(o.t, err)
		data, sent = data[n:], sent+n
		o.settle()
		for _, c := range o.loop.conns {
			if cap(c.request.Held) > protocol.FirstChunk+protocol.Growth*sent {
				o.t.Fatalf("it holds %d bytes for a client that sent %d", cap(c.request.Held), sent)
			}
		}
	}
}

// settle lets the store serve until it has nothing left to do, and reads the replies.
func (o *lone) settle() {
	var buf [64 << 10]byte
	events := make([]unix.EpollEvent, 8)
	for busy := true; busy; {
		n, err := unix.EpollWait(o.loop.poller.FD, events, 0)
		if err != nil && err != unix.EINTR {
			o.t.Fatal(err)
		}
		for _, e := range events[:max(n, 0)] {
			o.loop.serve(int(e.Fd), e.Events)
		}
		r, _ := unix.Read(o.client, buf[:]) // -1 for nothing
		o.replies = append(o.replies, buf[:max(r, 0)]...)
		busy = n != 0 || r > 0
	}
}

// close disconnects all clients, and returns what the budget counts beside stored values.
func (o *lone) close() int64 {
	unix.Close(o.client)
	o.settle()
	left := o.loop.table.budget.used
	for key, e := range o.loop.table.values {
		left -= int64(cost(key, e.frame))
	}
	for queue, frames := range o.loop.table.queues {
		for _, f := range frames {
			left -= int64(cost(queue, f))
		}
	}
	if len(o.loop.conns)+len(o.loop.table.waiting)+o.loop.deadlines.late.Len() > 0 {
		o.t.Errorf("a client left something behind: %+v", o.loop.table.waiting)
	}
	o.loop.close()
	o.loop.poller.Bell.Close()
	return left
}

// FuzzRequests sends what a client might send, once in one piece and once in small pieces. The
// store must give the same answers, hold no more than a multiple of the sent bytes, and free all of
// them.
func FuzzRequests(f *testing.F) {
	var modern, legacy []byte
	for _, e := range layout {
		modern = append(modern, e.request...)
		f.Add(cat(hello, e.request), uint16(1), uint32(0))
	}
	for _, e := range legacyLayout {
		legacy = append(legacy, e.request...)
		f.Add(e.request, uint16(3), uint32(0))
	}
	f.Add(cat(hello, modern, modern), uint16(7), uint32(0))
	f.Add(legacy, uint16(5), uint32(0))
	f.Add(cat(hello, b(6), le(2), str("/a"), str("/b"), b(12), b(1), str("/a"), str("")), uint16(2), uint32(0)) // a wait that is cancelled
	f.Add(cat(hello, b(18), str("/a"), le(2), b(18), str("/a"), le(2)), uint16(4), uint32(0))
	f.Add(hello, uint16(60000), uint32(3*protocol.ReadBuffer))
	f.Add(cat(hello, b(3), le(-1<<63)), uint16(1), uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, piece uint16, long uint32) {
		if long > 0 { // not part of the data: the fuzzer would minimize it for minutes
			value := bytes.Repeat(b(7), int(long%(16*protocol.ReadBuffer)))
			data = cat(data, b(1), str("/k"), str(string(value)), b(3), str("/k"))
		}
		whole, cut := newLone(t), newLone(t)
		whole.send(data, len(data))
		cut.send(data, max(1, int(piece), len(data)/1000))
		got, want := cut.replies, whole.replies
		if bytes.IndexByte(data, protocol.OpListKeys) >= 0 { // its reply has no order
			slices.Sort(got)
			slices.Sort(want)
		}
		if !bytes.Equal(got, want) || cut.end != whole.end {
			t.Errorf("the whole was answered with % x (%s), pieces of %d bytes with % x (%s)", want, whole.end, piece, got, cut.end)
		}
		for _, o := range []*lone{whole, cut} {
			if left := o.close(); left != 0 {
				t.Errorf("the budget is off by %d bytes when the client is gone", left)
			}
		}
	})
}

// FuzzScanner finds the end of a request in data that arrives in pieces. The scanner must find the
// same end, or give the same error, whatever the pieces are.
func FuzzScanner(f *testing.F) {
	for _, e := range layout {
		f.Add(e.request, uint16(1))
	}
	f.Add(cat(b(11), le(protocol.MaxKeys+1)), uint16(4))
	f.Add(cat(b(1), le(protocol.MaxKey+1)), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint16) {
		if len(data) == 0 || int(data[0]) >= len(modern) || data[0] == protocol.OpValidate {
			return
		}
		scan := func(step int) (end int, why string) {
			var r protocol.Incoming
			for have := min(step, len(data)); ; have = min(have+step, len(data)) {
				n, err := r.Scan(data[0], data[:have])
				switch {
				case err != nil:
					return 0, err.Error()
				case n > 0:
					return n, ""
				case r.Need <= have || r.Need > have+8+8+protocol.MaxValue:
					t.Fatalf("with %d bytes it needs %d", have, r.Need)
				case have == len(data):
					return -1, ""
				}
			}
		}
		end, why := scan(len(data))
		if e, w := scan(max(1, int(piece))); e != end || w != why {
			t.Errorf("the whole ends at %d (%s), in pieces at %d (%s)", end, why, e, w)
		}
		if end > len(data) {
			t.Errorf("it ends at %d of %d bytes", end, len(data))
		}
	})
}
