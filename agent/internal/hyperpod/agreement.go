package hyperpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// agree makes the queued calls of the store and follows the job's rounds, until Close.
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

// flushLimit bounds for how long after Close calls of the store are still made, for example to
// report the end of a rank.
const flushLimit = 5 * time.Second

// flush makes the calls of the store that were queued before Close.
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
	case s.work <- func(ctx context.Context, r rounds) { s.fail(do(ctx, r)) }:
	default:
		s.broken = errSlow
	}
}

// fail notes why the store does not answer, unless err is nil or Close was called.
func (s *Server) fail(err error) {
	if err == nil || s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.sockets.Warn(fmt.Errorf("the HyperPod socket: the nodes cannot agree: %w", err))
	s.look()
}

var errSlow = errors.New("the store does not answer")

// hear notes that a run has begun or ended.
func (s *Server) hear(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if e.arrivals != nil {
		s.o.Saves.agree(e.arrivals)
		s.runs, s.job, s.count = true, together(e.arrivals), restarts(e.round, e.arrivals)
		s.streak.begin(now)
		for _, p := range s.places {
			if p.does == atBarrier {
				p.become(running, now)
				p.tell = laterOf(now, p.heard.Add(cmp.Or(s.o.settle, settle)))
			}
		}
	} else {
		s.round, s.runs, s.counted = e.round+1, false, false
		s.streak.end(now, s.o.Limit)
		for _, p := range s.places {
			switch {
			case p.does == running && p.told:
				p.become(returning, now)
			case p.does == running: // the rank was not told of the run, and is still at the barrier
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

// arrive tells the other nodes that all ranks here are at the barrier, or that a rank has come to
// the barrier while the other ranks run. The caller has the mutex.
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
	if s.counted || slices.ContainsFunc(s.places, func(p *place) bool { return p.does != atBarrier }) {
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

// Ended notes that the process of a rank has ended with a failure. It ends the run of the other
// ranks.
func (s *Server) Ended(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs {
		s.fault(fmt.Sprintf("rank %d has ended", rank))
	}
}
