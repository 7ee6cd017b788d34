package tcpstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// complaints collects a store's warnings.
type complaints chan error

func (w complaints) options() Options { return Options{Warn: func(err error) { w <- err }} }

// next waits for a warning that has all of the given words.
func (w complaints) next(t *testing.T, words ...string) {
	t.Helper()
	select {
	case err := <-w:
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the warning lacks %q: %v", word, err)
			}
		}
	case <-time.After(patience):
		t.Fatalf("there was no warning of %q", words)
	}
}

// disconnected waits until the other end has closed a connection, and fails the test if it does
// not.
func disconnected(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// TestStrangers sends invalid requests. The store disconnects each sender, with one warning that
// names the sender. Two other clients, one that waits and one that counts, notice nothing.
func TestStrangers(t *testing.T) {
	warned := make(complaints, 64)
	s := serveHere(t, warned.options())
	waiter, counter, ctx := dialHere(t, s), dialHere(t, s), t.Context()
	over := make(chan error, 1)
	go func() { over <- waiter.Wait(ctx, "over") }()
	strangers := []struct {
		name    string
		sent    []byte
		leaves  bool
		warning string
	}{
		{name: "http", sent: []byte("GET / HTTP/1.1\r\n\r\n"), warning: "it sent 71, which is no request"},
		{name: "tls", sent: b(22, 3, 1, 2, 0, 1, 0, 1, 252), warning: "it sent 22, which is no request"},
		{name: "another protocol.Magic number", sent: b(0, 1, 2, 3, 4, 1, 0, 0, 0), warning: "a key of length"},
		{name: "an unknown request", sent: cat(hello, b(19)), warning: "it sent 19, which is no request"},
		{name: "a second greeting", sent: cat(hello, hello), warning: "it sent 0, which is no request"},
		{name: "a key of 2^63", sent: cat(hello, b(3), le(-1<<63)), warning: "length 9223372036854775808"},
		{name: "a key of 8193", sent: cat(hello, b(3), le(protocol.MaxKey+1)), warning: "limit of 8192"},
		{name: "a value over 8 MiB", sent: cat(hello, b(1), str("k"), le(protocol.MaxValue+1)), warning: "limit of 8388608"},
		{name: "a second value of 2^63", sent: cat(hello, b(2), str("k"), str(""), le(-1<<63)), warning: "a value of length"},
		{name: "a list of a million", sent: cat(hello, b(5), le(1_000_000)), warning: "limit of 131072"},
		{name: "counting with text", sent: cat(hello, b(1), str("/text"), str("x"), b(4), str("/text"), le(1)), warning: `"text"`},
		{name: "leaving within a request", sent: cat(hello, b(1), le(5)), leaves: true, warning: "within a request"},
		{name: "leaving a wait", sent: cat(hello, b(6), le(1), str("/x")), leaves: true, warning: `waited for "x"`},
		{name: "leaving within the first byte's request", sent: b(0), leaves: true, warning: "within a request"},
	}
	for i, e := range strangers {
		conn := bare(t, s)
		_, err := conn.Write(e.sent)
		ok(t, err)
		if e.leaves {
			ok(t, conn.(*net.TCPConn).CloseWrite())
		}
		disconnected(t, conn)
		warned.next(t, e.warning, conn.LocalAddr().String())
		call(counter.Add(ctx, "n", 1))(t, int64(i+1))
	}
	for range 300 { // a scan of ports
		bare(t, s).Close()
	}
	call(counter.Add(ctx, "n", 1))(t, int64(len(strangers)+1))
	ok(t, counter.Set(ctx, "over", nil))
	ok(t, <-over)
	if len(warned) > 0 {
		t.Errorf("there was one warning too many: %v", <-warned)
	}
}

// TestLate has two clients that stop. One stops in the middle of a request. The other stops before
// it has read its replies, the last of which is a value.
func TestLate(t *testing.T) {
	warned := make(complaints, 8)
	o := warned.options()
	o.Patience = time.Second
	s := serveHere(t, o)
	c := dialHere(t, s)
	ok(t, c.Set(t.Context(), "large", make([]byte, protocol.MaxValue)))
	call(c.Check(t.Context(), "large"))(t, true)
	before := s.Status().Bytes

	slow := bare(t, s)
	_, err := slow.Write(cat(hello, b(1), le(5), b('/')))
	ok(t, err)
	disconnected(t, slow)
	warned.next(t, "did not end within 1s", slow.LocalAddr().String())

	nonReader := bare(t, s)
	request := cat(hello, b(3), str("/large"))
	for range 1000 {
		if _, err = nonReader.Write(request); err != nil {
			break
		}
		request = request[len(request)-15:]
	}
	warned.next(t, "read nothing of a reply for 1s", nonReader.LocalAddr().String())
	call(c.Check(t.Context(), "large"))(t, true)
	if after := s.Status().Bytes; after != before {
		t.Errorf("the store held %d bytes before those clients came, and %d after", before, after)
	}
}

// TestClaims makes many clients announce long values that they never send.
func TestClaims(t *testing.T) {
	s := serveHere(t, Options{})
	const n = 300
	for range n {
		exchange(t, bare(t, s), false, "a claim", cat(hello, b(13, 1, 2, 3, 4), b(1), str("/k"), le(protocol.MaxValue)), b(1, 2, 3, 4))
	}
	if st := s.Status(); st.Bytes > n*100 || len(st.Clients) != n {
		t.Errorf("the store holds %d bytes for %d clients that sent 32 each", st.Bytes, len(st.Clients))
	}
}

func TestFull(t *testing.T) {
	warned := make(complaints, 8)
	o := warned.options()
	o.MaxBytes = 1 << 20
	s := serveHere(t, o)
	conn := bare(t, s)
	_, err := conn.Write(cat(hello, b(1), str("/k"), le(protocol.MaxValue), make([]byte, 2<<20)))
	if err == nil {
		disconnected(t, conn)
	}
	warned.next(t, "the store is full: it may hold 1048576 bytes", conn.LocalAddr().String())
	call(dialHere(t, s).Add(t.Context(), "n", 1))(t, 1)
}

// allocated returns how many bytes of memory f allocates, including memory that is freed again.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestCopies checks how often the store copies long requests and their replies, by the memory that
// it allocates.
func TestCopies(t *testing.T) {
	s := serveHere(t, Options{})
	conn, other := bare(t, s), bare(t, s)
	for _, conn := range []net.Conn{conn, other} {
		exchange(t, conn, false, "PING", cat(hello, b(13, 1, 2, 3, 4)), b(1, 2, 3, 4))
	}
	value := make([]byte, protocol.MaxValue)
	set, reply := cat(b(1), str("/k"), str(string(value)), b(5), le(0)), make([]byte, 1)
	for _, first := range []int{0, 1, 30 << 10, protocol.ReadBuffer, protocol.FirstChunk, 1 << 20} { // the part that is read before the rest
		took := allocated(func() {
			_, err := conn.Write(set[:first])
			ok(t, err)
			exchange(t, other, false, "PING", b(13, 1, 2, 3, 4), b(1, 2, 3, 4))
			exchange(t, conn, false, "SET", set[first:], reply)
		})
		if took > len(value)/2*3 {
			t.Errorf("storing %d bytes, %d of them before the others, took %d of memory", len(value), first, took)
		}
	}
	get, reply := cat(b(3), str("/k")), make([]byte, 8+len(value))
	_, err := conn.Write(get)
	ok(t, err)
	took := allocated(func() { _, err = io.ReadFull(conn, reply) })
	ok(t, err)
	if took > len(value)/8 {
		t.Errorf("sending %d bytes took %d of memory", len(value), took)
	}

	list := cat(b(5), le(protocol.MaxKeys))
	for range protocol.MaxKeys {
		list = append(list, str(fmt.Sprintf("/%99d", 0))...)
	}
	reply = b(protocol.NotReady)
	took = allocated(func() { exchange(t, conn, false, "CHECK", list, reply) })
	if took > 6*len(list) {
		t.Errorf("a list of %d bytes took %d of memory", len(list), took)
	}
}

func TestAllow(t *testing.T) {
	near, far := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	var nodes atomic.Pointer[[]netip.Addr]
	nodes.Store(&[]netip.Addr{near})
	warned := make(complaints, 8)
	o := warned.options()
	o.Allow = func(a netip.Addr) bool { return slices.Contains(*nodes.Load(), a) }
	s := serveHere(t, o)
	ok(t, dialHere(t, s).Set(t.Context(), "k", nil))
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: far.AsSlice()}}
	conn, err := from.Dial("tcp4", s.Addr().String())
	ok(t, err)
	ok(t, conn.SetDeadline(time.Now().Add(patience)))
	disconnected(t, conn)
	warned.next(t, "it is not a node of the job", conn.LocalAddr().String())
	conn.Close()

	nodes.Store(&[]netip.Addr{near, far})
	conn, err = from.Dial("tcp4", s.Addr().String())
	ok(t, err)
	defer conn.Close()
	ok(t, conn.SetDeadline(time.Now().Add(patience)))
	exchange(t, conn, false, "PING", cat(hello, b(13, 1, 2, 3, 4)), b(1, 2, 3, 4))
}

// TestThousandsVanish disconnects thousands of clients while each is storing the longest value. The
// store frees their memory.
func TestThousandsVanish(t *testing.T) {
	const clients = 9000 // both ends are in this process, which may have only 20,000 files
	s := serveHere(t, Options{Warn: func(error) {}})
	rest := dialHere(t, s)
	ok(t, rest.Set(t.Context(), "kept", nil))
	store, memory := s.Status().Bytes, heap()
	c := newCrowd(t, s.Addr())
	c.play(clients, func(_, round int, _ []byte) ([]byte, int) {
		if round == 0 {
			return greet, 4
		}
		return nil, 0
	})
	part := cat(b(1), str("/k"), le(protocol.MaxValue), make([]byte, 1000))
	for _, fd := range c.fds {
		_, err := unix.Write(fd, part)
		ok(t, err)
	}
	call(rest.Check(t.Context(), "kept"))(t, true)
	c.leave()
	for limit := time.Now().Add(patience); len(s.Status().Clients) > 1; {
		if call(rest.Check(t.Context(), "kept"))(t, true); time.Now().After(limit) {
			t.Fatalf("%d clients are there after %v", len(s.Status().Clients), patience)
		}
	}
	if after := s.Status().Bytes; after != store {
		t.Errorf("the store held %d bytes before them, and %d after", store, after)
	}
	if more := heap() - memory; more > clients*100 {
		t.Errorf("%d bytes of memory are not given back", more)
	}
}

// heap returns the bytes in the heap.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestSilentClients checks that the store disconnects silent clients to make room for others, but
// only if they were silent for long.
func TestSilentClients(t *testing.T) {
	warned := make(complaints, 64)
	o := warned.options()
	o.MaxClients, o.Patience = func() int { return 2 }, 3*time.Second
	s := serveHere(t, o)
	first, silent := dialHere(t, s), bare(t, s)
	disconnected(t, bare(t, s))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		disconnected(t, silent)
	}()
	for asked := true; asked; {
		select {
		case <-gone:
			asked = false
		case <-time.After(10 * time.Millisecond):
			bare(t, s).Close()
		}
	}
	for len(s.Status().Clients) > 1 {
		<-s.Changes()
	}
	if err := dialHere(t, s).Set(t.Context(), "key", []byte("value")); err != nil {
		t.Error(err)
	}
	if _, err := first.Get(t.Context(), "key"); err != nil {
		t.Errorf("the first client: %v", err)
	}
	disconnected(t, bare(t, s)) // no client is silent, so the new one is refused
}

// TestTooManyClients checks that the store disconnects excess clients, with the reason. Earlier
// clients continue. When one of them has gone, another client may connect.
func TestTooManyClients(t *testing.T) {
	warned := make(complaints, 64)
	o := warned.options()
	o.MaxClients = func() int { return 2 }
	s := serveHere(t, o)
	first, second := dialHere(t, s), bare(t, s)
	disconnected(t, bare(t, s))
	warned.next(t, "it has 2 connections, and may have no more")
	if err := first.Set(t.Context(), "key", []byte("value")); err != nil {
		t.Error(err)
	}
	second.Close()
	for len(s.Status().Clients) > 1 {
		<-s.Changes()
	}
	if got, err := dialHere(t, s).Get(t.Context(), "key"); err != nil || string(got) != "value" {
		t.Errorf("%q, error %v", got, err)
	}
}
