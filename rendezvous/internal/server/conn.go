package server

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/peer"
)

// listener accepts each connection as a [Conn].
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: conn}, nil
}

// Conn is a connection below TLS. It knows how the connection ends, which gRPC does not report.
type Conn struct {
	net.Conn
	// Node is the agent's node. Outputs is the number of jobs whose output the agent delivers. Both
	// belong to the coordinator's goroutine.
	Node    string
	Outputs int

	// records is not nil for TLS.
	records *records
	// slot is the channel from which the end of the TLS handshake must take a value; nil before the
	// handshake.
	slot     chan struct{}
	hasAgent atomic.Bool
	open     openStreams
	received received

	// writing serializes writes. reset says that a write failed because of a reset. Reads then
	// report an ordinary end.
	writing sync.Mutex
	reset   bool
}

// ConnOf returns the connection of a call.
func ConnOf(ctx context.Context) *Conn {
	p, _ := peer.FromContext(ctx)
	return p.Addr.(connAddr).conn
}

// ClaimAgent returns true for the first caller. A connection carries one agent only, so that the
// end of the connection says something about that agent.
func (c *Conn) ClaimAgent() bool { return c.hasAgent.CompareAndSwap(false, true) }

func (c *Conn) Read(b []byte) (int, error) {
	if c.records != nil && len(c.records.ahead) > 0 {
		return c.records.next(b), nil
	}
	n, err := c.Conn.Read(b)
	c.received.note(b[:n], err)
	if c.records != nil && n > 0 {
		return c.records.cut(b[:n]), nil // the next Read returns the error again
	}
	return n, err
}

// records gives crypto/tls one record at a time (RFC 8446 section 5.1). Otherwise the buffer of
// crypto/tls would double whenever the beginning of a record remains in it: to 10 kB for each agent
// that has once sent something long.
type records struct {
	header [5]byte
	// have is how many bytes of the header were passed on. body is how many bytes of the record's
	// body were not passed on yet.
	have, body int
	// ahead has bytes that were read and not passed on yet.
	ahead []byte
}

// cut returns how much of b may be passed on. It keeps the rest.
func (r *records) cut(b []byte) int {
	n := r.pass(b)
	r.ahead = append(r.ahead, b[n:]...)
	return n
}

// next passes on data that was read ahead.
func (r *records) next(b []byte) int {
	n := r.pass(r.ahead[:min(len(b), len(r.ahead))])
	copy(b, r.ahead[:n])
	if r.ahead = r.ahead[n:]; len(r.ahead) == 0 {
		r.ahead = nil
	}
	return n
}

// pass returns how much of b belongs to the present record.
func (r *records) pass(b []byte) (n int) {
	if r.body == 0 {
		n = copy(r.header[r.have:], b)
		if r.have += n; r.have < len(r.header) {
			return n
		}
		r.have, r.body = 0, int(binary.BigEndian.Uint16(r.header[3:]))
	}
	more := min(r.body, len(b)-n)
	r.body -= more
	return n + more
}

// OnDeath calls f, in a goroutine of its own, once the last received bytes are the proof that
// matches a commitment. It calls f at once if they already are. The connection looks for the proof
// itself, because TLS and gRPC cannot parse it, and close the connection.
func (c *Conn) OnDeath(commitment []byte, f func(outOfMemory bool)) { c.received.expect(commitment, f) }

func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(b)
	c.reset = c.reset || errors.Is(err, syscall.ECONNRESET)
	return n, err
}

// ClosedInOrder reports whether the peer closed the connection without a reset. The kernel also
// closes the connections of a dying process in this way. ClosedInOrder waits for a write under way.
func (c *Conn) ClosedInOrder() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.received.isClosed() && !c.reset
}

// abandoned reports whether the peer has closed the connection and left nothing to read. The caller
// must not read at the same time.
func (c *Conn) abandoned() bool {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	abandoned := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		abandoned = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return abandoned || err != nil
}

// RemoteAddr lets a handler find the connection from gRPC's peer.
func (c *Conn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// PeerAddr returns the address of the other end as package net knows it.
func (c *Conn) PeerAddr() net.Addr { return c.Conn.RemoteAddr() }

type connAddr struct {
	net.Addr
	conn *Conn
}
