package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// verdictLimit bounds the wait of a lost worker's calls for the coordinator's verdict. On an
	// idle machine the verdict takes milliseconds for a failure, and up to two seconds for an exit
	// with code 0.
	verdictLimit = 10 * time.Second
	// firstPause and lastPause bound the pause between two questions to the nodes about lost
	// workers. exitAnswerLimit bounds the wait for a node's answer.
	firstPause      = 50 * time.Millisecond
	lastPause       = 5 * time.Second
	exitAnswerLimit = time.Second
)

// awaitVerdict handles the end of a worker's connection. It ends the pending calls with the
// coordinator's verdict, or without a verdict after verdictLimit. If the worker may connect again,
// awaitVerdict waits until the coordinator reports the worker's death.
func (g *Group) awaitVerdict(l *link, attempt int) {
	limit := time.NewTimer(verdictLimit)
	defer limit.Stop()
	for {
		g.mu.Lock()
		f, over, changed, again := g.failed[attempt], g.over, g.changed, g.workers[l.rank].lost == l && l.canResume()
		if f != nil && !g.endedBy(f, l.rank) {
			f = nil
		}
		g.mu.Unlock()
		if f != nil || over != nil {
			l.fail(f)
			return
		}
		if l.connected() {
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

// findExited finds the workers that have exited with code 0, since the coordinator does not report
// these exits. It asks the workers' nodes while a link is lost. A live worker connects again by
// itself.
func (g *Group) findExited() {
	pause := lastPause
	for {
		var again <-chan time.Time
		if g.anyLost() {
			again = time.After(pause)
		}
		select {
		case <-g.disconnected:
			pause = firstPause
		case <-again:
			pause = min(2*pause, lastPause)
		case <-g.ctx.Done():
			return
		}
		if !g.anyLost() {
			continue
		}
		for n, err := range g.client.Samples(g.ctx, launcher.SampleQuery{Job: g.ID, Within: exitAnswerLimit}) {
			if err != nil { // the group's watch reports what is wrong with the coordinator
				break
			}
			for _, s := range n.Series {
				if s.Job == g.ID && s.Rank >= 0 && s.Rank < g.size && s.Exit != nil && s.Exit.OK() && len(s.Samples) > 0 {
					g.noteExit(s.Rank, s.Last().Attempt)
				}
			}
		}
	}
}

// anyLost reports whether a link has ended for a reason that is not known yet.
func (g *Group) anyLost() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over == nil && slices.ContainsFunc(g.workers, func(w worker) bool { return w.lost != nil })
}

// noteExit records that a worker has exited with code 0, and ends its calls.
func (g *Group) noteExit(rank, attempt int) {
	g.change(func() {
		w := &g.workers[rank]
		if w.lost == nil || w.attempt != attempt {
			return
		}
		w.lost.fail(&report.Failure{
			Node: w.node, Rank: rank, Attempt: attempt, At: time.Now(),
			Why: fmt.Sprintf("rank %d on %s %s: it is not started again", rank, w.node, report.Exit{}),
		})
		w.exited, w.lost = w.lost, nil
	})
}

// hasExited reports whether a worker has exited with code 0.
func (g *Group) hasExited(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.workers[rank].exited != nil
}
