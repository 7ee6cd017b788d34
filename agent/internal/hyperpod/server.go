// Package hyperpod serves the socket of Amazon's HyperPod elastic agent to the ranks of a node. The
// ranks use the unmodified client of hyperpod-elastic-agent 1.1, in programs that restart within
// their processes.
//
// Each rank comes to the barrier. When all ranks of the job are there, the server tells each rank
// its part of the run that begins. Three events end the run: a rank reports a fault, a rank that
// restarts alone ends, or a rank comes to the barrier again. Then the server tells all ranks, and
// they come to the barrier. What the nodes agree on is in the job's store (see rounds). A rank that
// does not come back in time is overdue: package stall reports the rank to the coordinator, and the
// attempt fails.
package hyperpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

const (
	// settle is how long after a rank arrives the server tells it that a run begins. The client
	// discards messages that it receives before it waits. If the rank then sends nothing, the
	// server repeats the message after again.
	settle = 100 * time.Millisecond
	// again is after what time the server repeats the message about a fault. A program that asks
	// for faults only from time to time discards messages in between.
	again = 2 * time.Second
	// maxAll bounds the data of all ranks together, and maxData the data of one rank, in bytes.
	maxAll  = 4 << 20
	maxData = 4 << 10
)

// Rank counts in the job. Own counts among the ranks that share a store, such as a replica group.
type Rank struct {
	// Rank is the rank in the job. Own is the rank in its own store, which a replica group has.
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
	// round is the round that ranks come to or that runs. counted says that this node has come to
	// the round. known says that round is known.
	round          int
	known, runs    bool
	counted, ended bool
	// job is what the ranks learned at the start of the newest run. count is the number of the run.
	job   *jobData
	count int
	// broken says why the store does not answer.
	broken error
	timer  *time.Timer
	late   bool
	told   time.Time
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
	// tell is when to tell the rank next what has happened; zero for never. told says that the rank
	// was told.
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

// client is a connection of a rank, which several objects of a process share.
type client struct {
	conn  net.Conn
	names []string
	// write guards the connection.
	write sync.Mutex
}

// maxNames bounds the objects that share a connection.
const maxNames = 64

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
	s.all.Go(func() {
		if err := s.agree(); err != nil && s.ctx.Err() == nil {
			s.sockets.Warn(fmt.Errorf("the HyperPod socket: the nodes cannot agree: %w", err))
			s.mu.Lock()
			s.broken = err
			s.mu.Unlock()
			s.look()
		}
	})
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

// agree follows what the nodes agree on until Close.
func (s *Server) agree() error {
	calls, err := tcpstore.DialUnlisted(s.ctx, s.o.Store, callLimit)
	if err != nil {
		return err
	}
	defer calls.Close()
	r := rounds{calls: calls, world: s.o.World}
	round, err := r.newest(s.ctx, fmt.Sprintf("rank %d has started anew", s.o.Ranks[0].Rank))
	if err != nil {
		return err
	}
	waits, err := tcpstore.DialUnlisted(s.ctx, s.o.Store, callLimit)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.round, s.known = round, true
	s.arrive()
	s.mu.Unlock()
	watched := make(chan error, 1)
	s.all.Go(func() {
		defer waits.Close()
		watched <- watch(s.ctx, waits, round, s.hear)
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(flushLimit, cancel) })()
	for {
		select {
		case <-s.ctx.Done():
			s.flush(ctx, r)
			return nil
		case err := <-watched:
			s.flush(ctx, r)
			return err
		case do := <-s.work:
			do(ctx, r)
		}
	}
}

// flushLimit bounds for how long after Close the store may still be asked, for example about the
// end of a rank.
const flushLimit = 5 * time.Second

// flush asks the store what was queued before Close.
func (s *Server) flush(ctx context.Context, r rounds) {
	for {
		select {
		case do := <-s.work:
			do(ctx, r)
		default:
			return
		}
	}
}

// ask queues a call of the store. The caller has the mutex.
func (s *Server) ask(do func(context.Context, rounds) error) {
	select {
	case s.work <- func(ctx context.Context, r rounds) {
		if err := do(ctx, r); err != nil && s.ctx.Err() == nil {
			s.mu.Lock()
			s.broken = err
			s.mu.Unlock()
			s.sockets.Warn(fmt.Errorf("the HyperPod socket: the nodes cannot agree: %w", err))
			s.look()
		}
	}:
	default:
		s.broken = errSlow
	}
}

var errSlow = errors.New("the store does not answer")

// hear follows the job's rounds.
func (s *Server) hear(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if e.arrivals != nil {
		s.o.Saves.agree(e.arrivals)
		s.runs, s.job, s.count = true, together(e.arrivals), restarts(e.round, e.arrivals)
		for _, p := range s.places {
			if p.does == atBarrier {
				p.become(running, now)
				p.tell = laterOf(now, p.heard.Add(cmp.Or(s.o.settle, settle)))
			}
		}
		if !s.allDo(running) { // the run began without a rank here, which has to come
			s.arrive()
		}
	} else {
		s.round, s.runs, s.counted = e.round+1, false, false
		for _, p := range s.places {
			switch {
			case p.does == running && p.told:
				p.become(returning, now)
			case p.does == running: // the rank is still at the barrier
				p.become(atBarrier, now)
			}
			p.send(said{Type: typeFault, RestartCount: new(s.count + 1)}, s.sockets.Complain)
			if p.does == returning {
				p.tell = now.Add(again)
			}
		}
		s.arrive()
	}
	s.arm(now)
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (p *place) become(does doing, now time.Time) {
	p.does, p.since, p.suspect, p.tell, p.told = does, now, false, time.Time{}, false
}

func (s *Server) allDo(does doing) bool {
	return !slices.ContainsFunc(s.places, func(p *place) bool { return p.does != does })
}

// arrive tells the other nodes that all ranks here are at the barrier, or that a rank has come
// while the others run. The caller has the mutex.
func (s *Server) arrive() {
	if !s.known {
		return
	}
	if s.runs {
		for _, p := range s.places {
			if p.does == atBarrier {
				s.fault(fmt.Sprintf("rank %d has come to the barrier", p.Rank.Rank))
				return
			}
		}
		return
	}
	if s.counted || !s.allDo(atBarrier) {
		return
	}
	s.counted = true
	a := arrival{Node: s.o.Node, IP: s.o.Addr.String(), Attempt: s.o.Attempt, First: s.o.Ranks[0].Own}
	a.Saves, a.Saved = s.o.Saves.state()
	for _, p := range s.places {
		if p.data != nil {
			a.Ranks = append(a.Ranks, rankData{s.o.Node, p.Own, p.LocalRank, p.failed, *p.data})
		}
	}
	round, n := s.round, len(s.places)
	s.ask(func(ctx context.Context, r rounds) error { return r.arrive(ctx, round, a, n) })
}

// fault ends the run. The caller has the mutex.
func (s *Server) fault(why string) {
	round := s.round
	s.ask(func(ctx context.Context, r rounds) error { return r.fault(ctx, round, why) })
}

// Ended notes that the process of a rank has ended with a failure. The run of the other ranks ends
// too.
func (s *Server) Ended(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs {
		s.fault(fmt.Sprintf("rank %d has ended", rank))
	}
}

// serve talks with a process of a rank until the connection ends.
func (s *Server) serve(conn net.Conn, p *place) {
	c := &client{conn: conn}
	s.mu.Lock()
	p.clients[c] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(p.clients, c)
		s.mu.Unlock()
	}()
	for {
		text, err := ranksocket.ReadFrame(conn)
		var m message
		if err == nil {
			m, err = parse(text)
		}
		if err == nil {
			err = s.take(c, p, m)
		}
		if err != nil {
			s.sockets.Complain(fmt.Sprintf("rank %d", p.Rank.Rank), err)
			return
		}
	}
}

var errNames = errors.New("too many clients in one process")

// take notes what a rank says.
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
		return c.say(said{Type: typeRankInfo, Client: m.Client, Env: s.env(p), Job: s.jobData()})
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
	text := fmt.Sprintf("rank %d has failed, and all ranks restart within their processes", p.Rank.Rank)
	if why != "" {
		text += ": " + why
	}
	s.sockets.Warn(errors.New(text))
	if s.known && s.runs {
		s.fault(text)
	}
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

func (s *Server) jobData() *jobData {
	if s.job == nil {
		return together(nil)
	}
	return s.job
}

// say writes a message. If the client does not read, say ends the connection.
func (c *client) say(v any) error {
	text, err := frame(v)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	return ranksocket.Say(c.conn, text)
}

// send tells all clients of a rank.
func (p *place) send(m said, complain func(string, error)) {
	for c := range p.clients {
		for _, name := range c.names {
			m.Client = name
			if err := c.say(m); err != nil {
				complain(fmt.Sprintf("rank %d", p.Rank.Rank), err)
				c.conn.Close()
				break
			}
		}
	}
}

// Due receives a value when a rank becomes overdue, repeatedly while a rank is overdue, and when no
// rank is overdue any more.
func (s *Server) Due() <-chan struct{} { return s.due }

// Waits returns what each rank does, in the order of the ranks. It omits ranks that wait for
// another rank.
func (s *Server) Waits() (waits []ranksocket.Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.places {
		w := ranksocket.Wait{Rank: p.Rank.Rank, For: now.Sub(p.since), Step: -1, Heard: p.heard}
		switch {
		case p.does == returning:
			w.Does = fmt.Sprintf("on its way back to the barrier, which may take %v", s.o.Limit)
			w.Limited, w.Overdue = true, s.overdue(p, now)
		case p.does == atBarrier && s.broken != nil:
			w.Does, w.Overdue = "at the barrier, and the nodes cannot agree: "+s.broken.Error(), true
		case p.does == running:
			w.Does = "past the barrier"
		default:
			continue // the rank waits for the others, or may never use the socket
		}
		waits = append(waits, w)
	}
	return waits
}

// overdue reports whether a rank is certainly late: the last look also found it late.
func (s *Server) overdue(p *place, now time.Time) bool {
	return p.does == returning && p.suspect && now.Sub(p.since) >= s.o.Limit
}

// look repeats messages that ranks may have missed, and notices overdue ranks.
func (s *Server) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	before := s.late
	s.late = false
	for _, p := range s.places {
		if !p.tell.IsZero() && !now.Before(p.tell) {
			s.tellAgain(p, now)
		}
		if p.does == returning && now.Sub(p.since) >= s.o.Limit {
			s.late = s.late || p.suspect
			p.suspect = true
		}
		s.late = s.late || p.does == atBarrier && s.broken != nil
	}
	if s.late && (!before || now.Sub(s.told) >= tellEvery) || before && !s.late {
		s.told = now
		select {
		case s.due <- struct{}{}:
		default:
		}
	}
	s.arm(now)
}

// tellEvery is how often an overdue rank is reported again.
const tellEvery = 5 * time.Second

// tellAgain tells a rank that a run begins or has ended. The caller has the mutex.
func (s *Server) tellAgain(p *place, now time.Time) {
	p.tell = time.Time{}
	switch p.does {
	case running:
		if p.told && p.heard.After(p.since) {
			return
		}
		p.send(said{Type: typeStart, Env: s.env(p), Job: s.job}, s.sockets.Complain)
		if !p.told {
			p.told, p.tell = true, now.Add(again)
		}
	case returning:
		p.send(said{Type: typeFault, RestartCount: new(s.count + 1)}, s.sockets.Complain)
		p.tell = now.Add(again)
	}
}

// arm sets the timer for the next look. The caller has the mutex.
func (s *Server) arm(now time.Time) {
	if s.ended {
		return
	}
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, p := range s.places {
		sooner(p.tell)
		if p.does == returning && !p.suspect {
			sooner(p.since.Add(s.o.Limit))
		}
		if p.does == returning && p.suspect && !s.late {
			sooner(now.Add(time.Second))
		}
	}
	if s.late {
		sooner(s.told.Add(tellEvery))
	}
	if !next.IsZero() {
		s.timer.Reset(next.Sub(now))
	}
}
