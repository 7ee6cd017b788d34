// Package stall notices ranks that do not move.
package stall

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/ranksocket"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
)

// Looks is how often the watch looks at ranks in --hang-timeout. The watch counts looks instead of
// time, so that ranks do not seem to hang after a pause of their node.
const (
	Looks = 4
	// halfway is the number of looks without movement after which a report lists a rank, so that
	// the coordinator can compare the steps of ranks. A continuing stall is reported again after as
	// many looks.
	halfway = Looks / 2
)

// Options say which ranks to watch.
type Options struct {
	// Base has the node, the unit and the attempt for each report.
	Base job.Stalled
	// AsksNCCL says that this node asks NCCL. Only one node asks, because NCCL knows about the
	// whole job.
	AsksNCCL bool
	// Limit is how long ranks may stand still; 0 watches nothing. Ticks, if not nil, says when to
	// look.
	Limit time.Duration
	Ticks <-chan time.Time
	// Monitor receives what ranks say about themselves, and has limits of its own. It is nil if
	// there is none.
	Monitor Monitor
	Scope   ranks.Scope
	Ranks   []ranks.Rank
	Report  func(job.Stalled)
	Warn    func(error)
}

// Monitor receives what ranks say about themselves.
type Monitor interface {
	// Due receives a value when a rank becomes overdue, repeatedly while a rank is overdue, and
	// when no rank is overdue any more.
	Due() <-chan struct{}
	// Waits returns what the connected ranks do, in the order of the ranks.
	Waits() []ranksocket.Wait
}

// Watch reports when ranks stop moving, and when they move again. The caller must call stop once
// the ranks have exited.
func Watch(o Options) (stop func()) {
	if o.Limit <= 0 && o.Monitor == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{Options: o, every: o.Limit / Looks}
	for _, r := range o.Ranks {
		w.ranks = append(w.ranks, &movement{Rank: r, step: -1})
	}
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// watch belongs to its goroutine.
type watch struct {
	Options
	every time.Duration
	ranks []*movement
	// reported is the number of looks since a stall was reported; 0 while there is no stall.
	// partial says that only some ranks had stalled then.
	reported int
	partial  bool
	nccl     ncclprobe.Progress
	// overdue says that a rank was overdue in the newest report of the monitor.
	overdue bool
}

func (w *watch) run(ctx context.Context) {
	ticks := w.Ticks
	if w.Limit <= 0 {
		ticks = nil
	} else if ticks == nil {
		ticks = time.Tick(w.every)
	}
	var due <-chan struct{}
	if w.Monitor != nil {
		due = w.Monitor.Due()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			w.look(ctx)
		case <-due:
			w.lookAtMonitor()
		}
	}
}

// lookAtMonitor reports the ranks that are overdue. It adds the ranks that have done the same thing
// for half as long, because these may wait for other ranks. It reports no rank if none is overdue
// any more.
func (w *watch) lookAtMonitor() {
	waits, least := w.Monitor.Waits(), time.Duration(math.MaxInt64)
	for _, wait := range waits {
		if wait.Overdue {
			least = min(least, wait.For/2)
		}
	}
	e, before := w.Base, w.overdue
	w.overdue = false
	for _, wait := range waits {
		if wait.For >= least {
			w.overdue = true
			e.Ranks = append(e.Ranks, job.Still{Rank: wait.Rank, For: wait.For, Beat: wait.Overdue, Step: wait.Step, Does: wait.Does})
		}
	}
	if w.overdue || before {
		w.Report(e)
	}
}

// look looks once, and reports what has changed.
func (w *watch) look(ctx context.Context) {
	live := w.lookAtRanks(ctx)
	behind := w.askNCCL(ctx, live)
	missed := func(m *movement) bool { return m.beats && m.still >= Looks }
	stalled := len(live) > 0 && (allStill(live, Looks) || slices.ContainsFunc(live, missed))
	partial := !stalled && someStill(live)
	switch {
	case ctx.Err() != nil:
	case !stalled && !partial && w.reported > 0:
		w.reported = 0
		w.report(nil, nil, false)
	case stalled || partial:
		if w.reported%halfway == 0 || partial != w.partial {
			w.reported = 0
			w.report(live, behind, partial)
		}
		w.reported++
	}
	w.partial = partial
}

// someStill reports whether some ranks have not moved for the whole limit while no rank has written
// anything for as long.
func someStill(live []*movement) bool {
	still := func(m *movement) bool { return m.still >= Looks }
	loud := func(m *movement) bool { return m.silent < Looks }
	return slices.ContainsFunc(live, still) && !slices.ContainsFunc(live, loud)
}

// allStill reports whether all ranks have stood still for n looks.
func allStill(live []*movement, n int) bool {
	return !slices.ContainsFunc(live, func(m *movement) bool { return m.still < n })
}

// askNCCL asks NCCL about the job when all ranks here stand still. If the job progresses on other
// nodes, the ranks here count as moving.
func (w *watch) askNCCL(ctx context.Context, live []*movement) []job.Client {
	if !w.AsksNCCL || len(live) == 0 || live[0].RAS == "" || !allStill(live, halfway) {
		return nil
	}
	addrs := make([]string, len(live))
	for i, m := range live {
		addrs[i] = m.RAS
	}
	moved, behind := w.nccl.Ask(ctx, addrs)
	if moved {
		for _, m := range live {
			m.moved()
		}
	}
	return behind
}

// lookAtRanks looks at the ranks that have not exited.
func (w *watch) lookAtRanks(ctx context.Context) (live []*movement) {
	members, err := w.Scope.Members()
	if err != nil {
		w.Warn(err)
	}
	said := w.said()
	for _, m := range w.ranks {
		if !m.Running() {
			continue
		}
		live = append(live, m)
		m.still++
		if m.look(members, w.every) {
			m.moved()
		}
		if m.heartbeat() {
			m.beats, m.still, m.silent = true, 0, 0
		}
		m.hear(said[m.Bundle.Rank])
	}
	w.lookAtPower(ctx, live)
	return live
}

// said returns what ranks do, according to their own messages.
func (w *watch) said() map[int]ranksocket.Wait {
	if w.Monitor == nil {
		return nil
	}
	said := map[int]ranksocket.Wait{}
	for _, wait := range w.Monitor.Waits() {
		said[wait.Rank] = wait
	}
	return said
}

// lookAtPower asks the driver about the GPUs of ranks that show no other movement. It compares
// their energy with the previous call, so the first call finds no movement.
func (w *watch) lookAtPower(ctx context.Context, live []*movement) {
	quiet := func(m *movement) bool {
		return m.Bundle.GPU != nil && m.Bundle.GPU.UUID != "" && !m.beats && m.still > 0
	}
	if !slices.ContainsFunc(live, quiet) {
		return
	}
	devices, _, err := gpu.Survey(ctx)
	if err != nil {
		return // a driver that does not answer is no movement
	}
	for _, d := range devices {
		for _, m := range live {
			if !quiet(m) || m.Bundle.GPU.UUID != d.UUID {
				continue
			}
			used := float64(d.Power.Energy-m.power.Energy) / w.every.Seconds() // milliwatts
			if m.still > 1 && m.power.Energy > 0 && used >= movedPower*float64(d.Power.Limit) && d.Power.Limit > 0 {
				m.moved()
			}
			m.power = d.Power
		}
	}
}

// report reports the ranks that stand still, or none if all move again.
func (w *watch) report(live []*movement, behind []job.Client, partial bool) {
	e := w.Base
	e.Behind = behind
	least := halfway
	if partial {
		least = Looks
	}
	for _, m := range live {
		if partial && m.still < Looks {
			e.Moving++
		}
		if m.still >= least {
			e.Ranks = append(e.Ranks, job.Still{
				Rank: m.Bundle.Rank, For: time.Duration(m.still) * w.every, Beat: m.beats && m.still >= Looks, Step: m.step, Does: m.activity,
			})
		}
	}
	w.Report(e)
}
