package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// open reports whether the server has left a connection open.
func open(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, _, failed = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	if err != nil {
		t.Fatal(err)
	}
	return errors.Is(failed, unix.EAGAIN)
}

// TestConnectionsAreBounded: strangers make room for the next one, and guests keep their places.
func TestConnectionsAreBounded(t *testing.T) {
	sources := map[string]view.Source{"here": cluster(1)}
	s := New(Options{Model: view.New(sources, view.Options{}), Sources: func() map[string]view.Source { return sources }, Host: "localhost"})
	session, _ := s.gate.enter(s.gate.token)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	asks := func(c net.Conn) {
		t.Helper()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: golaunch-%s=%s\r\n\r\n", l.Addr(), port, session)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s, %v", answer.Status, err)
		}
	}
	guests := []net.Conn{dial(), dial()}
	for _, c := range guests {
		asks(c)
	}
	var strangers []net.Conn
	for range 3 * maxStrangers {
		strangers = append(strangers, dial())
	}
	late := dial()
	asks(late) // returns when all connections have been accepted
	for _, c := range append(guests, late) {
		if !open(t, c) {
			t.Error("a guest has lost his place")
		}
		asks(c)
	}
	left := 0
	for i, c := range strangers {
		if open(t, c) {
			left++
		} else if i > 2*maxStrangers {
			t.Errorf("stranger %d of %d had to go, and others that came before stay", i, len(strangers))
		}
	}
	if left > maxStrangers {
		t.Errorf("%d strangers are connected", left)
	}
}

// TestPlaces: a connection has a place until it is closed for the first time, and a guest without a
// place is a stranger.
func TestPlaces(t *testing.T) {
	l := pipes{make(chan net.Conn, 3), make(chan struct{})}
	defer l.Close()
	p := &places{Listener: l, maxStrangers: 2, maxGuests: 1}
	accept := func() *placed {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		l.conns <- far
		c, err := p.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*placed)
	}
	enter := func(c *placed) {
		welcome((&http.Request{}).WithContext(withPlace(t.Context(), c)))
	}
	holds := func(strangers, guests int) {
		t.Helper()
		if len(p.strangers) != strangers || p.guests != guests {
			t.Errorf("%d strangers and %d guests, want %d and %d", len(p.strangers), p.guests, strangers, guests)
		}
	}
	guest, other := accept(), accept()
	enter(guest)
	enter(guest)
	enter(other)
	holds(1, 1)
	accept()
	accept() // takes the place of other
	holds(2, 1)
	enter(other)
	for range 2 {
		guest.Close()
		other.Close()
	}
	holds(2, 0)
}
