// Package ranksocket has the sockets on which ranks talk to their agent, and describes the activity
// that ranks report there.
package ranksocket

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

const (
	// MaxConns bounds the simultaneous connections of each socket.
	MaxConns = 8
	// MaxWarnings bounds the warnings of an attempt.
	MaxWarnings = 20
	// MaxFrame bounds a message of a rank, in bytes.
	MaxFrame = 64 << 10
	// pause is how long after a refusal the next connection is accepted.
	pause = 100 * time.Millisecond
	// answerLimit bounds how long an answer may take to write.
	answerLimit = 10 * time.Second
)

// Wait is what a rank does, according to its newest message.
type Wait struct {
	Rank int
	// Does says what the rank does. It follows "it is": "in section step, which may take 3m0s".
	Does string
	For  time.Duration
	// Limited says that the wait has a limit, and Overdue that the limit is over.
	Limited, Overdue bool
	// Step is the iteration of the rank; -1 if the rank has reported none.
	Step int64
	// Heard is when the rank last sent something.
	Heard time.Time
}

// Options say who may connect.
type Options struct {
	// What follows "the" in warnings, for example "rank monitor".
	What string
	// UID and GID are the ids of the job's user.
	UID, GID int
	// Mine reports whether a process belongs to the ranks.
	Mine func(pid int) bool
	Warn func(error)
}

// Sockets are the sockets of one attempt on this node, in a directory of their own.
type Sockets struct {
	o         Options
	dir       string
	listeners []net.Listener
	all       sync.WaitGroup
	over      chan struct{}

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	// warned counts the warnings.
	warned int
}

// Open makes the directory. The caller must call Close.
func Open(o Options) (*Sockets, error) {
	dir, err := endpoint.SocketDir(endpoint.RanksPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory for the %s: %w", o.What, err)
	}
	s := &Sockets{o: o, dir: dir, over: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	if o.UID != os.Geteuid() {
		// The user must be able to pass through, and the next agent must recognize the directory as
		// its own.
		if err := os.Chmod(dir, 0o711); err != nil {
			s.Close()
			return nil, fmt.Errorf("open the %s: %w", o.What, err)
		}
	}
	return s, nil
}

// Path returns the path of the socket with a name.
func (s *Sockets) Path(name string) string { return filepath.Join(s.dir, name) }

// Listen serves a socket that only the job's user can open. A connection ends when serve returns.
func (s *Sockets) Listen(name string, serve func(net.Conn)) error {
	path := s.Path(name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("open the %s: %w", s.o.What, err)
	}
	l.SetUnlinkOnClose(false) // the directory is removed as a whole
	s.listeners = append(s.listeners, l)
	err = os.Chmod(path, 0o600)
	if err == nil && s.o.UID != os.Geteuid() {
		err = os.Lchown(path, s.o.UID, s.o.GID)
	}
	if err != nil {
		return fmt.Errorf("open the %s: %w", s.o.What, err)
	}
	s.all.Go(func() { s.accept(l, serve) })
	return nil
}

func (s *Sockets) accept(l *net.UnixListener, serve func(net.Conn)) {
	free := make(chan struct{}, MaxConns)
	for {
		free <- struct{}{}
		conn, err := l.AcceptUnix()
		if err == nil {
			err = s.admit(conn)
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !errors.Is(err, errHungUp) {
				s.Warn(fmt.Errorf("the %s refuses a connection: %w", s.o.What, err))
			}
			<-free
			select {
			case <-s.over: // there may be too few descriptors for a while
			case <-time.After(pause):
			}
			continue
		}
		s.all.Go(func() {
			defer func() { <-free }()
			defer s.drop(conn)
			serve(conn)
		})
	}
}

// admit refuses connections of processes that do not belong to the ranks.
func (s *Sockets) admit(conn *net.UnixConn) error {
	peer, err := safefile.Peer(conn)
	if err == nil && !s.o.Mine(int(peer.Pid)) {
		err = cmp.Or(hungUp(conn), fmt.Errorf("process %d is not one of the ranks here", peer.Pid))
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	s.conns[conn] = struct{}{}
	return nil
}

var errHungUp = errors.New("it has hung up")

// hungUp is the error of a peer that has hung up without a message. Another agent asks in this way
// whether the socket has a listener (endpoint.Prune).
func hungUp(conn *net.UnixConn) error {
	if err := conn.SetReadDeadline(time.Now().Add(pause)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return errHungUp
	}
	return nil
}

func (s *Sockets) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

// Close ends all connections, and waits until nothing serves one.
func (s *Sockets) Close() {
	s.mu.Lock()
	s.closed = true
	close(s.over)
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	for _, l := range s.listeners {
		l.Close()
	}
	s.all.Wait()
	if err := os.RemoveAll(s.dir); err != nil {
		s.o.Warn(err)
	}
}

// Complain warns of a client's error. It does not warn if the client has only closed its
// connection.
func (s *Sockets) Complain(who string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return
	}
	s.Warn(fmt.Errorf("the %s of %s: %w", s.o.What, who, err))
}

// Warn warns of what a client does. It bounds the warnings, because a client may repeat its error.
func (s *Sockets) Warn(err error) {
	s.mu.Lock()
	s.warned++
	n := s.warned
	s.mu.Unlock()
	if n == MaxWarnings {
		err = fmt.Errorf("%w; more warnings of the %s are not shown", err, s.o.What)
	}
	if n <= MaxWarnings {
		s.o.Warn(err)
	}
}

// ReadFrame reads a message: its length in four bytes, and then its text.
func ReadFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > MaxFrame {
		return nil, fmt.Errorf("a message of %d bytes; at most %d are read", n, MaxFrame)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return text, err
}

// Frame returns a message with its length before it.
func Frame(text []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...)
}

// Say writes an answer that already begins with its length.
func Say(conn net.Conn, answer []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	_, err := conn.Write(answer)
	return err
}
