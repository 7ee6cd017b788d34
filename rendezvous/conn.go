package rendezvous

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire"
)

// watchedListener accepts connections that are watched.
type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn}, nil
}

// watchedConn sees what comes before TLS does, and how it ends, of which gRPC tells little.
type watchedConn struct {
	net.Conn
	// placed is where its TLS handshake has a place, if it is at work, and claimed says that it has an agent.
	placed  chan struct{}
	claimed atomic.Bool
	// node is that agent's, and outputs is how many it delivers; both belong to the goroutine of the
	// coordinator.
	node    string
	outputs int
	// These are how many streams are open, see streamLimits.
	jobs, inquiries, deliveries, joins atomic.Int32

	// writing is held by who writes, and reset says that this was told of a reset. Who reads sees an end in order then.
	writing sync.Mutex
	reset   bool

	mu sync.Mutex
	// closed says that the other end was.
	closed bool
	// tail is what came last, and commitment the SHA-256 of a tail that calls proven. That of the
	// tail's own SHA-256 does so too, and says that the agent was killed for want of memory.
	tail       [wire.ProofSize]byte
	commitment []byte
	proven     func(starved bool)
}

func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	last := b[max(0, n-wire.ProofSize):n]
	copy(w.tail[:], w.tail[len(last):])
	copy(w.tail[wire.ProofSize-len(last):], last)
	w.closed = w.closed || errors.Is(err, io.EOF)
	w.judge()
	return n, err
}

// onProof calls f, in a goroutine of its own, when what comes ends with the proof of a commitment, or if it has already: TLS and gRPC
// make nothing of it, and close the connection.
func (w *watchedConn) onProof(commitment []byte, f func(starved bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commitment, w.proven = commitment, f
	w.judge()
}

func (w *watchedConn) judge() {
	if len(w.commitment) == 0 {
		return
	}
	proof := sha256.Sum256(w.tail[:])
	second := sha256.Sum256(proof[:])
	if starved := bytes.Equal(second[:], w.commitment); starved || bytes.Equal(proof[:], w.commitment) {
		w.commitment = nil
		go w.proven(starved)
	}
}

func (w *watchedConn) Write(b []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	n, err := w.Conn.Write(b)
	w.reset = w.reset || errors.Is(err, syscall.ECONNRESET)
	return n, err
}

// gone says that the other end was closed in order, as the kernel does for a process that dies. It waits for who writes, until the
// connection takes that or is given up.
func (w *watchedConn) gone() bool {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed && !w.reset
}

// left says that the other end is closed already and nothing that it has sent waits to be read, as far as the kernel knows. Nobody reads
// meanwhile.
func (w *watchedConn) left() bool {
	socket, ok := w.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	left := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		left = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return left || err != nil
}

// RemoteAddr leads from gRPC's peer back to the connection.
func (w *watchedConn) RemoteAddr() net.Addr { return watchedAddr{w.Conn.RemoteAddr(), w} }

type watchedAddr struct {
	net.Addr
	conn *watchedConn
}
