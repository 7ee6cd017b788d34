// Package rankmonitor serves NVRx's rank monitor to the ranks of a node. The ranks use the
// unmodified RankMonitorClient of nvidia-resiliency-ext 0.4.1 to 0.7, in Megatron-LM and Lightning.
//
// Each rank connects to a socket of its own. It reports that it lives (heartbeats), and what it
// does (sections such as setup, step and checkpointing). A rank that is silent for longer than its
// limits allow is overdue. The monitor itself decides nothing: package stall reports the overdue
// rank to the coordinator, with what other ranks do. Ranks can learn their limits; these hold for
// the next attempts too.
//
// There is one more socket, the launcher's. On this socket a rank can ask that its node or the job
// does not start again.
package rankmonitor

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

const (
	// settle is how long a rank is overdue before the monitor reports it. NVRx's own monitor looks
	// every 5 s, and programs depend on that: they learn limits of a few milliseconds for saves to
	// a fast disk. An agent that was stopped also needs time to read what ranks have sent
	// meanwhile. again is the time until the next report.
	settle = 5 * time.Second
	again  = 5 * time.Second
)

// Options say which ranks to serve.
type Options struct {
	Config Config
	// Ranks are the ranks of this node, by their place in the attempt.
	Ranks []int
	// UID and GID are the ids of the job's user.
	UID, GID int
	// Learned has the limits that earlier attempts have learned.
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
	// ActionContinue asks for nothing. ActionExclude asks for a restart without this node, and
	// ActionEnd for no restart.
	ActionContinue Action = iota
	ActionExclude
	ActionEnd
)

// Request is what a rank asks to happen after the attempt, and why.
type Request struct {
	Rank   int
	Action Action
	Why    string
}

// Learned are the limits that the ranks of a job have learned on this node, by their place on the
// node.
type Learned struct {
	mu     sync.Mutex
	limits map[int]Limits
}

// of returns the limits that the rank at a place has learned. If it has learned none, of returns
// the configured limits.
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
	o       Options
	sockets *ranksocket.Sockets
	due     chan struct{}

	mu       sync.Mutex
	closed   bool
	sessions map[*session]int
	timer    *time.Timer
	// armed is when the timer fires; zero when it does not. late says that a rank is overdue. told
	// is the time of the last report about it.
	armed, told time.Time
	late        bool
}

// Serve opens the sockets.
func Serve(o Options) (s *Server, err error) {
	s = &Server{o: o, due: make(chan struct{}, 1), sessions: map[*session]int{}}
	s.sockets, err = ranksocket.Open(ranksocket.Options{What: "rank monitor", UID: o.UID, GID: o.GID, Mine: o.Mine, Warn: o.Warn})
	if err != nil {
		return nil, err
	}
	s.timer = time.AfterFunc(again, s.check)
	for place := range o.Ranks {
		err = cmp.Or(err, s.sockets.Listen(strconv.Itoa(place), func(c net.Conn) { s.serveRank(c, place) }))
	}
	err = cmp.Or(err, s.sockets.Listen(launcher, s.serveRequest))
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

const launcher = "launcher"

// Path returns the socket of the rank at a place, and Launcher the socket for requests.
func (s *Server) Path(place int) string { return s.sockets.Path(strconv.Itoa(place)) }
func (s *Server) Launcher() string      { return s.sockets.Path(launcher) }

// Close ends all sessions.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	s.mu.Unlock()
	s.sockets.Close()
}

// serveRequest takes one request.
func (s *Server) serveRequest(conn net.Conn) {
	m, err := next(conn)
	if err != nil {
		s.sockets.Complain("a request", err)
		return
	}
	asked, ok := m.(controlMsg)
	if !ok || !slices.Contains(s.o.Ranks, int(asked.rank)) || asked.action < 0 || asked.action > int64(ActionEnd) {
		s.sockets.Complain("a request", errMessage)
		return
	}
	s.o.Asked(Request{int(asked.rank), Action(asked.action), asked.why})
	if err := ranksocket.Say(conn, takenAnswer()); err != nil {
		s.sockets.Complain("a request", err)
	}
}

// next reads a message.
func next(conn net.Conn) (any, error) {
	text, err := ranksocket.ReadFrame(conn)
	if err != nil {
		return nil, err
	}
	return parseMessage(text)
}
