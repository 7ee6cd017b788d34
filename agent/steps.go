package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
)

// stepEvery is how often a step is told: each is in the job's journal.
const stepEvery = time.Minute

// tellSteps reports how far rank 0 has come, if it is here, by its heartbeat: now and then, and once more when the ranks have ended, for
// that is what the next attempt is compared with. Who calls it calls what it returns then.
func (u *unit) tellSteps(ranks []rank) (stop func()) {
	i := slices.IndexFunc(ranks, func(r rank) bool { return r.bundle.Rank == 0 })
	if i < 0 {
		return func() {}
	}
	var told int64
	tell := func() {
		b := lastBeat(ranks[i].output)
		if step, ok := b.step(); ok && step > 0 && step != told {
			told = step
			u.share.report(job.Stepped{
				Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt, Step: step, Ago: max(0, time.Since(b.at)),
			})
		}
	}
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(stepEvery)
		defer ticker.Stop()
		ticks := ticker.C
		if u.agent.beats != nil {
			ticks = u.agent.beats
		}
		for {
			select {
			case <-over:
				return
			case <-ticks:
				tell()
			}
		}
	})
	return func() {
		close(over)
		telling.Wait()
		tell()
	}
}
