package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/test/bufconn"
)

// Pipe returns the two ends of a listener inside this process, for an agent and a coordinator that share it.
func Pipe() (net.Listener, func(context.Context) (net.Conn, error)) {
	l := bufconn.Listen(64 << 10)
	return l, l.DialContext
}

// watchedListener accepts connections that are watched.
type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn}, nil
}

// watchedConn notes that its other end was closed, which gRPC does not tell apart from other errors.
type watchedConn struct {
	net.Conn
	// placed says that its TLS handshake is at work, claimed that it has an agent.
	placed  bool
	claimed atomic.Bool
	// node is that agent's; it belongs to the goroutine of the coordinator.
	node string

	mu     sync.Mutex
	closed bool
	tell   func()
}

func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed && w.tell != nil {
			go w.tell()
		}
		w.closed = true
	}
	return n, err
}

// onPeerClose calls f, in a goroutine of its own, when the other end is closed or if it is already.
func (w *watchedConn) onPeerClose(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell = f; w.closed {
		go f()
	}
}

// gone says that the other end was closed.
func (w *watchedConn) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// RemoteAddr leads from gRPC's peer back to the connection.
func (w *watchedConn) RemoteAddr() net.Addr { return watchedAddr{w.Conn.RemoteAddr(), w} }

type watchedAddr struct {
	net.Addr
	conn *watchedConn
}

// unsent bounds, in bytes, what the kernel keeps of a connection that the network does not take yet: a heartbeat waits behind it.
const unsent = 16 << 10

// hurry keeps the output of ranks from filling the kernel's buffers, of up to megabytes, before heartbeats: on a slow network these would
// be late by more than a lease (TCP_NOTSENT_LOWAT, tcp(7)). gRPC gives each stream its turn.
func hurry(conn net.Conn) {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // where it cannot be set, it is as slow as before
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		})
	}
}

// heldConn stays open when gRPC closes it, until release: its closing tells the coordinator that the ranks of this node are
// dead, and a broken stream does not mean that.
type heldConn struct {
	net.Conn
	mute atomic.Bool
}

// Close ends all reading and writing on this side.
func (h *heldConn) Close() error {
	h.mute.Store(true)
	return h.Conn.SetDeadline(time.Unix(1, 0))
}

func (h *heldConn) Write(b []byte) (int, error) {
	if h.mute.Load() {
		return 0, net.ErrClosed
	}
	return h.Conn.Write(b)
}

func (h *heldConn) release() error { return h.Conn.Close() }
