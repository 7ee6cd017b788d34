// Package rankmonitor serves NVRx's rank monitor to the ranks of a node: to the unmodified
// RankMonitorClient of nvidia-resiliency-ext 0.4.1 to 0.7, in Megatron-LM and Lightning.
//
// Each rank connects to a socket of its own. It says that it lives (heartbeats), and what it does
// (sections such as setup, step and checkpointing). A rank that says nothing for longer than its
// limits allow is overdue. That decides nothing here: package stall reports it to the coordinator,
// with what other ranks do. Ranks can learn their limits; these hold for the next attempts too.
//
// On one more socket, the launcher's, a rank can ask that its node or the job does not start again.
package rankmonitor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

const (
	// maxConns bounds the connections at a time, of each socket.
	maxConns = 8
	// settle is how long a rank is overdue before that is told: an agent that was stopped first reads
	// what ranks have said meanwhile. again is how long until it is told again.
	settle = time.Second
	again  = 5 * time.Second
	// pause is how long after a refusal the next connection is looked at.
	pause = 100 * time.Millisecond
	// maxWarnings bounds the warnings of an attempt.
	maxWarnings = 20
	// answerLimit bounds how long an answer may take to write.
	answerLimit = 10 * time.Second
)

// Options say which ranks to serve.
type Options struct {
	Config Config
	// Ranks are those of this node, by their place in the attempt.
	Ranks []int
	// UID and GID are those of the job's user.
	UID, GID int
	// Learned has what earlier attempts have learned.
	Learned *Learned
	// Mine reports whether a process belongs to these ranks.
	Mine func(pid int) bool
	// Asked gets what ranks ask for. It must not block.
	Asked func(Request)
	Warn  func(error)
}

// Action is what a rank asks for. Its values are those of NVRx's WorkloadAction.
type Action int64

const (
	// ActionContinue asks for nothing, ActionExclude for a restart without this node, and
	// ActionEnd for no restart.
	ActionContinue Action = iota
	ActionExclude
	ActionEnd
)

// Request is what a rank asks for the time after the attempt, and why.
type Request struct {
	Rank   int
	Action Action
	Why    string
}

// Learned are the limits that the ranks of a job have learned on this node, by their place there.
type Learned struct {
	mu     sync.Mutex
	limits map[int]Limits
}

// of is what the rank at a place has learned; the configured limits if it has not.
func (l *Learned) of(place int, otherwise Limits) Limits {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limits, ok := l.limits[place]; ok {
		return limits.clone()
	}
	return otherwise.clone()
}

func (l *Learned) set(place int, limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits == nil {
		l.limits = map[int]Limits{}
	}
	l.limits[place] = limits.clone()
}

// Server serves the ranks of one attempt until Close.
type Server struct {
	o         Options
	dir       string
	listeners []net.Listener
	all       sync.WaitGroup
	due, over chan struct{}

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	sessions map[*session]int
	timer    *time.Timer
	// warned counts the warnings.
	warned int
	// armed is when the timer fires; zero when it does not. late says that a rank is overdue, and
	// told is when that was last told.
	armed, told time.Time
	late        bool
}

// Serve opens the sockets.
func Serve(o Options) (s *Server, err error) {
	dir, err := endpoint.SocketDir("golaunch-ranks-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the rank monitor: %w", err)
	}
	s = &Server{o: o, dir: dir, due: make(chan struct{}, 1), over: make(chan struct{}), conns: map[net.Conn]struct{}{}, sessions: map[*session]int{}}
	s.timer = time.AfterFunc(again, s.check)
	for place := range o.Ranks {
		err = cmp.Or(err, s.listen(s.Path(place), func(c net.Conn) { s.serveRank(c, place) }))
	}
	err = cmp.Or(err, s.listen(s.Launcher(), s.serveRequest))
	if err == nil && o.UID != os.Geteuid() {
		err = os.Lchown(dir, o.UID, o.GID)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open the rank monitor: %w", err)
	}
	return s, nil
}

// Path is the socket of the rank at a place, and Launcher the one for requests.
func (s *Server) Path(place int) string { return filepath.Join(s.dir, strconv.Itoa(place)) }
func (s *Server) Launcher() string      { return filepath.Join(s.dir, "launcher") }

// listen serves a socket that the job's user alone can open.
func (s *Server) listen(path string, serve func(net.Conn)) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // the directory goes as a whole
	s.listeners = append(s.listeners, l)
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	if s.o.UID != os.Geteuid() {
		if err := os.Lchown(path, s.o.UID, s.o.GID); err != nil {
			return err
		}
	}
	s.all.Go(func() { s.accept(l, serve) })
	return nil
}

func (s *Server) accept(l *net.UnixListener, serve func(net.Conn)) {
	free := make(chan struct{}, maxConns)
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
				s.warn(fmt.Errorf("the rank monitor refuses a connection: %w", err))
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

// admit refuses connections of processes that are no part of the ranks.
func (s *Server) admit(conn *net.UnixConn) error {
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

// hungUp is the error of a peer that has hung up without a word: another agent has asked whether
// the socket has a listener (endpoint.Prune).
func hungUp(conn *net.UnixConn) error {
	if err := conn.SetReadDeadline(time.Now().Add(pause)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return errHungUp
	}
	return nil
}

func (s *Server) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

// Close ends all sessions.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	close(s.over)
	s.timer.Stop()
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

// warn warns of what a client does wrong, which may do it again and again.
func (s *Server) warn(err error) {
	s.mu.Lock()
	s.warned++
	n := s.warned
	s.mu.Unlock()
	if n == maxWarnings {
		err = fmt.Errorf("%w; more errors of its clients are not shown", err)
	}
	if n <= maxWarnings {
		s.o.Warn(err)
	}
}

// serveRequest takes one request.
func (s *Server) serveRequest(conn net.Conn) {
	m, err := next(conn)
	if err != nil {
		s.complain("a request", err)
		return
	}
	asked, ok := m.(controlMsg)
	if !ok || !slices.Contains(s.o.Ranks, int(asked.rank)) || asked.action < 0 || asked.action > int64(ActionEnd) {
		s.complain("a request", errMessage)
		return
	}
	s.o.Asked(Request{int(asked.rank), Action(asked.action), asked.why})
	if err := say(conn, takenAnswer()); err != nil {
		s.complain("a request", err)
	}
}

// next reads a message.
func next(conn net.Conn) (any, error) {
	text, err := readFrame(conn)
	if err != nil {
		return nil, err
	}
	return parseMessage(text)
}

func say(conn net.Conn, answer []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	_, err := conn.Write(answer)
	return err
}
