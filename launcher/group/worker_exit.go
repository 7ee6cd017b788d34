package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// Why a worker whose connection has ended is gone

const (
	// verdictLimit is how long the calls of a worker whose connection has ended wait for what
	// golaunch says of it. Some milliseconds are usual for one that has failed, and up to two
	// seconds for one that has exited with code 0; on a busy machine it is more.
	verdictLimit = 10 * time.Second
	// firstLook and lastLook are the pauses after which workers of which golaunch has said nothing
	// are looked for again, the shortest and the longest. Nodes that do not answer are waited for
	// within lookWithin.
	firstLook  = 50 * time.Millisecond
	lastLook   = 5 * time.Second
	lookWithin = time.Second
)

// explain ends the calls of a worker whose connection has ended: with what golaunch says of it, or
// soon without. One that may come again has the time for it: golaunch says when it lives no more.
func (g *Group) explain(l *link, attempt int) {
	limit := time.NewTimer(verdictLimit)
	defer limit.Stop()
	for {
		g.mu.Lock()
		f, over, changed, again := g.failed[attempt], g.over, g.changed, g.workers[l.rank].unclear == l && l.resumes()
		if f != nil && !g.endsWith(f, l.rank) {
			f = nil
		}
		g.mu.Unlock()
		if f != nil || over != nil {
			l.fail(f)
			return
		}
		if l.there() {
			return
		}
		select {
		case <-changed:
		case <-l.gone:
			return
		case <-limit.C:
			if again {
				limit.Reset(verdictLimit)
				continue
			}
			l.fail(nil)
			return
		case <-g.ctx.Done():
			l.fail(nil)
			return
		}
	}
}

// look finds the workers that have exited with code 0, as golaunch tells of failures alone: it asks
// their nodes, as long as it is not clear why a connection has ended. A worker that lives on
// without one comes again by itself.
func (g *Group) look() {
	pause := lastLook
	for {
		var again <-chan time.Time
		if g.unclear() {
			again = time.After(pause)
		}
		select {
		case <-g.lost:
			pause = firstLook
		case <-again:
			pause = min(2*pause, lastLook)
		case <-g.ctx.Done():
			return
		}
		if !g.unclear() {
			continue
		}
		for n, err := range g.client.Samples(g.ctx, launcher.SampleQuery{Job: g.ID, Within: lookWithin}) {
			if err != nil { // what is wrong with the coordinator, the watch says
				break
			}
			for _, s := range n.Series {
				if s.Job == g.ID && s.Rank >= 0 && s.Rank < g.size && s.Ended == (report.Exit{}).String() && len(s.Samples) > 0 {
					g.left(s.Rank, s.Samples[len(s.Samples)-1].Attempt)
				}
			}
		}
	}
}

// unclear says whether a connection has ended and it is not known why.
func (g *Group) unclear() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over == nil && slices.ContainsFunc(g.workers, func(w caller) bool { return w.unclear != nil })
}

// left gives up a worker that has exited with code 0.
func (g *Group) left(rank, attempt int) {
	g.change(func() {
		w := &g.workers[rank]
		if w.unclear == nil || w.attempt != attempt {
			return
		}
		w.unclear.fail(&launcher.Failure{
			Node: w.node, Rank: rank, Attempt: attempt, At: time.Now(),
			Why: fmt.Sprintf("rank %d on %s %s: it is not started again", rank, w.node, report.Exit{}),
		})
		w.left, w.unclear = w.unclear, nil
	})
}

// hasLeft says whether a worker has exited with code 0.
func (g *Group) hasLeft(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.workers[rank].left != nil
}
