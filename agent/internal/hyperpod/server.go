// Package hyperpod serves the socket of Amazon's HyperPod elastic agent to the ranks of a node. The
// ranks use the unmodified client of hyperpod-elastic-agent 1.1, in programs that restart within
// their processes.
//
// Each rank comes to the barrier. When all ranks of the job are there, the server tells each rank
// its part of the run that begins. Three events end the run: a rank reports a fault, the process of
// a rank that restarts alone ends, or a rank comes to the barrier again. Then the server tells all
// ranks, and they come to the barrier. What the nodes agree on is in the job's store (see rounds).
// A rank that does not come back in time is overdue: package stall reports the rank to the
// coordinator, and the attempt fails.
package hyperpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

const (
	// settle is how long a rank must be silent before the server tells it that a run begins. The
	// client discards messages that arrive before it waits for them. If the rank then sends
	// nothing, the server repeats the message once, after the time again.
	settle = 100 * time.Millisecond
	// again is the time after which the server repeats a message about a fault. A program that asks
	// for faults only from time to time discards messages that arrive in between.
	again = 2 * time.Second
	// maxShort bounds how many runs in a row may be shorter than [Options].Limit. The next fault in
	// a run that is as short restarts the process, which counts as a restart of the job.
	maxShort = 10
	// maxAll bounds the data of all ranks together, and maxData the data of one rank, in bytes.
	maxAll  = 4 << 20
	maxData = 4 << 10
)

// Rank is a rank of this node that the server serves.
type Rank struct {
	// Rank is the rank in the job. Own is the rank among the ranks that share a store: those of the
	// job, or of one replica group.
	Rank, Own, LocalRank int
	// Env is the rank's values of the variables that a run may change.
	Env map[string]string
}

// Options say which ranks to serve.
type Options struct {
	Ranks []Rank
	// World is how many ranks come to the barrier.
	World, Attempt int
	// Node is the node rank, and Addr the node's address.
	Node int
	Addr netip.Addr
	// Limit is how long a rank may take to come to the barrier after a fault.
	Limit time.Duration
	// Store is the store in which the nodes agree.
	Store netip.AddrPort
	// Saves are the checkpoints that ranks of earlier attempts have reported.
	Saves *Saves
	// UID, GID, Mine and Warn are the options of ranksocket.
	UID, GID int
	Mine     func(pid int) bool
	Warn     func(error)
	// Restart ends the process of a rank that has asked for it.
	Restart func(rank int, why string)
	// settle replaces the constant in a test.
	settle time.Duration
}

// Server serves the ranks of one attempt until Close.
type Server struct {
	o       Options
	sockets *ranksocket.Sockets
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup
	due     chan struct{}
	// work has the calls of the store that are to be made, in order.
	work chan func(context.Context, rounds)

	mu     sync.Mutex
	places []*place
	// round is the round to whose barrier ranks come, or that runs. counted says that this node has
	// come to that barrier. known says that round is known.
	round          int
	known, runs    bool
	counted, ended bool
	// job is what the ranks learned at the start of the newest run. count is the number of the run.
	job    *jobData
	count  int
	streak streak
	// broken says why the store does not answer.
	broken error
	timer  *time.Timer
	late   bool
	told   time.Time
}

// streak counts runs that were too short. began is when the newest run began, and short how many
// runs in a row before it were too short. faults is how many faults of the newest run were
// reported.
type streak struct {
	began         time.Time
	short, faults int
}

func (s *streak) begin(now time.Time) { s.began, s.faults = now, 0 }

// brief reports whether the newest run is too short at this time.
func (s *streak) brief(now time.Time, limit time.Duration) bool { return now.Sub(s.began) < limit }

func (s *streak) end(now time.Time, limit time.Duration) {
	if s.short++; !s.brief(now, limit) {
		s.short = 0
	}
}

// place is the server's side of a rank.
type place struct {
	Rank
	clients map[*client]bool
	data    *string
	failed  bool
	does    doing
	// since is when the rank began what it does. heard is when the rank last sent something.
	since, heard time.Time
	// tell is when to send the rank the next message about the run; zero for never. told says that
	// the rank got such a message.
	tell time.Time
	told bool
	// suspect says that the rank was overdue at the last look.
	suspect bool
}

// doing is what a rank does.
type doing int

const (
	starting doing = iota
	atBarrier
	running
	returning
)

// Serve opens the sockets.
func Serve(o Options) (s *Server, err error) {
	s = &Server{o: o, due: make(chan struct{}, 1), work: make(chan func(context.Context, rounds), 2*len(o.Ranks)+8)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.sockets, err = ranksocket.Open(ranksocket.Options{What: "HyperPod socket", UID: o.UID, GID: o.GID, Mine: o.Mine, Warn: o.Warn})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(again, s.look)
	now := time.Now()
	for i, r := range o.Ranks {
		p := &place{Rank: r, clients: map[*client]bool{}, since: now, heard: now}
		s.places = append(s.places, p)
		err = cmp.Or(err, s.sockets.Listen(strconv.Itoa(i), func(c net.Conn) { s.serve(c, p) }))
	}
	if err != nil {
		s.timer.Stop()
		s.cancel()
		s.sockets.Close()
		return nil, err
	}
	s.all.Go(func() { s.fail(s.agree()) })
	return s, nil
}

// Path returns the socket of the rank at a place.
func (s *Server) Path(place int) string { return s.sockets.Path(strconv.Itoa(place)) }

// Close ends all connections.
func (s *Server) Close() {
	s.cancel()
	s.mu.Lock()
	s.ended = true
	s.timer.Stop()
	s.mu.Unlock()
	s.sockets.Close()
	s.all.Wait()
}

func (p *place) become(does doing, now time.Time) {
	p.does, p.since, p.suspect, p.tell, p.told = does, now, false, time.Time{}, false
}

var errNames = errors.New("too many clients in one process")

// take processes a message of a rank.
func (s *Server) take(c *client, p *place, m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p.heard = now
	switch m.Type {
	case typeInit:
		if len(c.names) >= maxNames {
			return errNames
		}
		c.names = append(c.names, m.Client)
		return c.say(said{Type: typeRankInfo, Client: m.Client, Env: s.env(p), Job: cmp.Or(s.job, together(nil))})
	case typeAtBarrier:
		p.become(atBarrier, now)
		s.arrive()
		s.arm(now)
	case typePast:
		p.data, p.failed = nil, false
	case typeFault:
		return s.takeFault(p, m)
	case typeData:
		if m.Data == nil || len(*m.Data) > min(maxData, maxAll/s.o.World) {
			return fmt.Errorf("the data of a rank may have %d bytes", min(maxData, maxAll/s.o.World))
		}
		p.data = m.Data
	case typeLabels:
	case typeSavesBegin:
		s.o.Saves.begin(m)
	case typeSaved:
		if !s.o.Saves.saved(p.Own, m) {
			return fmt.Errorf("a checkpoint of a kind that was not announced: %.64q", m.Kind)
		}
	case typeNewestSave:
		return c.say(newestSave{Type: m.Type, Client: m.Client, Path: s.o.Saves.path()})
	default:
		return fmt.Errorf("a message of the type %.20q", m.Type)
	}
	return nil
}

// takeFault ends the run, or the process of the rank if the rank asks for that.
func (s *Server) takeFault(p *place, m message) error {
	why := strings.Join(strings.Fields(m.Reason+" "+m.Message), " ")
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "")
	}
	p.failed = true
	if m.RestartMode != inProcess {
		s.o.Restart(p.Rank.Rank, cmp.Or(why, m.RestartMode))
		return nil
	}
	if s.runs && s.streak.short >= maxShort && s.streak.brief(time.Now(), s.o.Limit) {
		s.o.Restart(p.Rank.Rank, fmt.Sprintf("%s; %d runs in a row have ended within %v", cmp.Or(why, "it has failed"), s.streak.short+1, s.o.Limit))
		return nil
	}
	text := fmt.Sprintf("rank %d has failed, and all ranks restart within their processes", p.Rank.Rank)
	if why != "" {
		text += ": " + why
	}
	if !s.known || !s.runs {
		s.sockets.Warn(errors.New(text))
		return nil
	}
	if s.streak.faults++; s.streak.faults == 1 { // the first fault ends the run, so its warning must not be omitted
		s.o.Warn(errors.New(text))
	} else {
		s.sockets.Warn(errors.New(text))
	}
	s.fault(text)
	return nil
}

// maxWhy bounds what a rank says about a fault, in bytes.
const maxWhy = 256

// env returns the variables of a rank for a run. The caller has the mutex.
func (s *Server) env(p *place) map[string]string {
	env := maps.Clone(p.Env)
	count := strconv.Itoa(s.count)
	if s.job == nil {
		count = strconv.Itoa(s.o.Attempt)
	}
	env["JOB_RESTART_COUNT"], env["TORCHELASTIC_RESTART_COUNT"], env["SPARE"] = count, count, "False"
	return env
}
