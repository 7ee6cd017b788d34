package tcpstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// le returns a number in 8 bytes as torch sends it. str returns a string or value with its length
// before it.
func le(n int64) []byte      { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
func str(s string) []byte    { return append(le(int64(len(s))), s...) }
func cat(p ...[]byte) []byte { return bytes.Join(p, nil) }
func b(p ...byte) []byte     { return p }

// hello begins a connection of torch 2.2 or later; 2.5 and later then ping.
var hello = b(0, 0xCE, 0xF7, 0x85, 0x3C)

// layout is the wire format, written out: the request, the reply, and the client's call that should
// send the request.
var layout = []struct {
	name           string
	request, reply []byte
	call           func(context.Context, *Client) error
}{
	{"SET", cat(b(1), str("/k"), str("v")), nil, func(ctx context.Context, c *Client) error { return c.Set(ctx, "k", b('v')) }},
	{"COMPARE_SET", cat(b(2), str("/k"), str("v"), str("w")), str("w"), func(ctx context.Context, c *Client) error {
		_, err := c.CompareSet(ctx, "k", b('v'), b('w'))
		return err
	}},
	{"GET", cat(b(3), str("/k")), str("w"), nil},
	{"GET of nothing", cat(b(3), str("/none")), str(""), nil},
	{"ADD", cat(b(4), str("/n"), le(-7)), le(-7), func(ctx context.Context, c *Client) error {
		_, err := c.Add(ctx, "n", -7)
		return err
	}},
	{"CHECK", cat(b(5), le(2), str("/k"), str("/n")), b(0), func(ctx context.Context, c *Client) error {
		_, err := c.Check(ctx, "k", "n")
		return err
	}},
	{"CHECK in vain", cat(b(5), le(2), str("/k"), str("/none")), b(1), nil},
	{"WAIT", cat(b(6), le(1), str("/k")), b(0), func(ctx context.Context, c *Client) error { return c.Wait(ctx, "k") }},
	{"GETNUMKEYS", b(7), le(2), func(ctx context.Context, c *Client) error { _, err := c.NumKeys(ctx); return err }},
	{"DELETE_KEY", cat(b(8), str("/n")), le(1), func(ctx context.Context, c *Client) error {
		_, err := c.DeleteKey(ctx, "n")
		return err
	}},
	{"APPEND", cat(b(9), str("/k"), str("x")), nil, func(ctx context.Context, c *Client) error {
		return c.Append(ctx, "k", b('x'))
	}},
	{"MULTI_GET", cat(b(10), le(2), str("/k"), str("/none")), cat(str("wx"), str("")), nil},
	{"MULTI_SET", cat(b(11), le(1), str("/k"), str("y")), nil, func(ctx context.Context, c *Client) error {
		return c.MultiSet(ctx, map[string][]byte{"k": b('y')})
	}},
	{"CANCEL_WAIT", b(12), b(1), nil},
	{"PING", b(13, 1, 2, 3, 4), b(1, 2, 3, 4), nil},
	{"QUEUE_PUSH", cat(b(14), str("/q"), str("a")), nil, func(ctx context.Context, c *Client) error {
		return c.QueuePush(ctx, "q", b('a'))
	}},
	{"QUEUE_LEN", cat(b(16), str("/q")), le(1), func(ctx context.Context, c *Client) error {
		_, err := c.QueueLen(ctx, "q")
		return err
	}},
	{"WAIT for a queue", cat(b(6), le(1), str("/q")), b(0), nil},
	{"QUEUE_POP", cat(b(15), str("/q")), cat(le(1), str("a")), func(ctx context.Context, c *Client) error {
		_, _, err := c.QueueTryPop(ctx, "q")
		return err
	}},
	{"QUEUE_POP of nothing", cat(b(15), str("/q")), le(0), nil},
	{"LIST_KEYS", b(17), cat(le(1), str("/k")), func(ctx context.Context, c *Client) error {
		_, err := c.ListKeys(ctx)
		return err
	}},
	{"BARRIER", cat(b(18), str("/gate"), le(1)), b(0), func(ctx context.Context, c *Client) error {
		return c.Barrier(ctx, "gate", 1)
	}},
}

// legacyLayout is the layout of torch 1.13, whose clients send no greeting. Such a client has a
// second connection, on which it sends nothing.
var legacyLayout = []struct {
	name           string
	request, reply []byte
}{
	{"SET", cat(b(0), str("/k"), str("v")), nil},
	{"COMPARE_SET", cat(b(1), str("/k"), str("v"), str("w")), str("w")},
	{"GET", cat(b(2), str("/k")), str("w")},
	{"ADD", cat(b(3), str("/n"), le(5)), le(5)},
	{"CHECK", cat(b(4), le(1), str("/n")), b(0)},
	{"WAIT", cat(b(5), le(1), str("/n")), b(0)},
	{"GETNUMKEYS", b(6), le(2)},
	{"DELETE_KEY", cat(b(8), str("/n")), le(1)},
	{"a SET whose length begins like the greeting", cat(b(0, 0xCE, 0x17, 0, 0, 0, 0, 0, 0), make([]byte, 0x17CE), str("")), nil},
	{"GETNUMKEYS after it", b(6), le(2)},
}

// exchange sends a request, a byte at a time if slowly is set. It fails the test when the reply is
// not the expected one.
func exchange(t *testing.T, conn net.Conn, slowly bool, name string, request, reply []byte) {
	t.Helper()
	step := len(request)
	if slowly {
		step = 1
	}
	for ; len(request) > 0; request = request[step:] {
		_, err := conn.Write(request[:step])
		ok(t, err)
	}
	got := make([]byte, len(reply))
	if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, reply) {
		t.Fatalf("%s was answered with % x, %v; want % x", name, got[:n], err, reply)
	}
}

func bare(t *testing.T, s *Store) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", s.Addr().String())
	ok(t, err)
	t.Cleanup(func() { conn.Close() })
	ok(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func TestServerLayout(t *testing.T) {
	for _, slowly := range []bool{false, true} {
		s := serveHere(t, Options{Warn: func(err error) { t.Error(err) }})
		conn := bare(t, s)
		exchange(t, conn, slowly, "VALIDATE", hello, nil)
		for _, e := range layout {
			exchange(t, conn, slowly, e.name, e.request, e.reply)
		}
		s = serveHere(t, Options{Warn: func(err error) { t.Error(err) }})
		conn = bare(t, s)
		for _, e := range legacyLayout {
			exchange(t, conn, slowly, e.name, e.request, e.reply)
		}
	}
}

func TestClientLayout(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	dialed := make(chan *Client, 1)
	go func() {
		c, err := Dial(t.Context(), addrPort(l.Addr()), patience)
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	server, err := l.Accept()
	ok(t, err)
	defer server.Close()
	ok(t, server.SetDeadline(time.Now().Add(patience)))
	pid := binary.LittleEndian.AppendUint32(nil, uint32(os.Getpid()))
	hear := func(name string, request, reply []byte) {
		t.Helper()
		got := make([]byte, len(request))
		if n, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, request) {
			t.Fatalf("%s was sent as % x, %v; want % x", name, got[:n], err, request)
		}
		_, err := server.Write(reply)
		ok(t, err)
	}
	hear("the greeting", cat(hello, b(13), pid), pid)
	c := <-dialed
	defer c.Close()
	for _, e := range layout {
		if e.call == nil {
			continue
		}
		called := make(chan error, 1)
		go func() { called <- e.call(t.Context(), c) }()
		hear(e.name, e.request, e.reply)
		ok(t, <-called)
	}
	got := make(chan error, 1)
	go func() { _, err := c.MultiGet(t.Context(), "k", "l"); got <- err }()
	hear("the wait of a get", cat(b(6), le(2), str("/k"), str("/l")), b(0))
	hear("MULTI_GET", cat(b(10), le(2), str("/k"), str("/l")), cat(str("1"), str("2")))
	ok(t, <-got)
	go func() { _, err := c.QueuePop(t.Context(), "q"); got <- err }()
	hear("the wait of a pop", cat(b(6), le(1), str("/q")), b(0))
	hear("QUEUE_POP", cat(b(15), str("/q")), le(0)) // another client was faster
	hear("the second wait of a pop", cat(b(6), le(1), str("/q")), b(0))
	hear("QUEUE_POP", cat(b(15), str("/q")), cat(le(1), str("a")))
	ok(t, <-got)
}
