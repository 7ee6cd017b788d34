package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
)

// Ranks are looked at four times in --hang-timeout. Time counts in looks, so that a node that was paused as a whole does not hang.
const (
	looks = 4
	// halfway ranks are listed, so that steps can be compared, and a stall that goes on is told again after so many looks.
	halfway = looks / 2
)

// watchStalls reports when ranks do not move. Who calls it calls what it returns when they have ended.
func (u *unit) watchStalls(scope scope, ranks []rank) (stop func()) {
	limit := u.share.work.Task.HangTimeout
	if limit <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &stallWatch{unit: u, scope: scope, look: limit / looks}
	for _, r := range ranks {
		w.pulses = append(w.pulses, &pulse{rank: r, step: -1})
	}
	var watching sync.WaitGroup
	watching.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// stallWatch looks at the ranks of a unit. It belongs to its goroutine.
type stallWatch struct {
	unit   *unit
	scope  scope
	look   time.Duration
	pulses []*pulse
	// told is the number of looks since a stall was reported; 0 while there is none. part says that it was of some ranks alone.
	told int
	part bool
	ras  rasWatch
}

func (w *stallWatch) run(ctx context.Context) {
	ticker := time.NewTicker(w.look)
	defer ticker.Stop()
	ticks := ticker.C
	if w.unit.agent.looks != nil {
		ticks = w.unit.agent.looks
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			w.see(ctx)
		}
	}
}

// see looks once, and reports what has changed.
func (w *stallWatch) see(ctx context.Context) {
	live := w.take(ctx)
	var behind []job.Client
	if w.asksRAS(live) {
		var moved bool
		if moved, behind = w.ras.ask(ctx, live); moved {
			for _, p := range live {
				p.move()
			}
		}
	}
	missed := func(p *pulse) bool { return p.beats && p.still >= looks }
	stalled := len(live) > 0 && (all(live, looks) || slices.ContainsFunc(live, missed))
	part := !stalled && split(live)
	switch {
	case ctx.Err() != nil:
	case !stalled && !part && w.told > 0:
		w.told = 0
		w.report(nil, nil, false)
	case stalled || part:
		if w.told%halfway == 0 || part != w.part {
			w.told = 0
			w.report(live, behind, part)
		}
		w.told++
	}
	w.part = part
}

// split says that some of the ranks have not moved for the whole limit, and that none has said anything for as long.
func split(live []*pulse) bool {
	still := func(p *pulse) bool { return p.still >= looks }
	loud := func(p *pulse) bool { return p.mute < looks }
	return slices.ContainsFunc(live, still) && !slices.ContainsFunc(live, loud)
}

// all says that none of the ranks has moved for so many looks.
func all(live []*pulse, n int) bool {
	return !slices.ContainsFunc(live, func(p *pulse) bool { return p.still < n })
}

// take looks at the ranks that have not ended.
func (w *stallWatch) take(ctx context.Context) (live []*pulse) {
	members, err := w.scope.Members()
	if err != nil {
		w.unit.agent.Warn(err)
	}
	for _, p := range w.pulses {
		select {
		case <-p.process.Done():
			continue
		default:
		}
		live = append(live, p)
		p.still++
		if p.take(members, w.look) {
			p.move()
		}
		if p.listen() {
			p.beats, p.still, p.mute = true, 0, 0
		}
	}
	w.takePower(ctx, live)
	return live
}

// takePower asks the driver about the GPUs of ranks that do not move otherwise. It answers from the second time on.
func (w *stallWatch) takePower(ctx context.Context, live []*pulse) {
	quiet := func(p *pulse) bool { return p.bundle.GPU != nil && p.bundle.GPU.UUID != "" && !p.beats && p.still > 0 }
	if !slices.ContainsFunc(live, quiet) {
		return
	}
	devices, _, err := gpu.Survey(ctx)
	if err != nil {
		return // a driver that does not answer is no movement
	}
	for _, d := range devices {
		for _, p := range live {
			if !quiet(p) || p.bundle.GPU.UUID != d.UUID {
				continue
			}
			used := float64(d.Power.Energy-p.power.Energy) / w.look.Seconds() // milliwatts
			if p.still > 1 && p.power.Energy > 0 && used >= movedPower*float64(d.Power.Limit) && d.Power.Limit > 0 {
				p.move()
			}
			p.power = d.Power
		}
	}
}

// report tells of the ranks that have not moved for a while, or for the limit where others do; of none when all move again.
func (w *stallWatch) report(live []*pulse, behind []job.Client, part bool) {
	u := w.unit
	e := job.Stalled{Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt, Behind: behind}
	least := halfway
	if part {
		least = looks
	}
	for _, p := range live {
		if part && p.still < looks {
			e.Moving++
		}
		if p.still >= least {
			e.Ranks = append(e.Ranks, job.Still{
				Rank: p.bundle.Rank, For: time.Duration(p.still) * w.look, Beat: p.beats && p.still >= looks, Step: p.step, Does: p.does,
			})
		}
	}
	u.share.report(e)
}
