package jobstate

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// books are the ledger of a world in which each step takes a second, the activity of each unit, and
// the sum of all seconds.
type books struct {
	ledger  goodput.Ledger
	doing   map[int]goodput.Change
	seconds int
}

// keep enters the changes of the n-th step, from 1.
func (b *books) keep(n int, changes []goodput.Change) {
	for _, c := range b.doing {
		if c.To != goodput.Over {
			b.seconds += c.Ranks
		}
	}
	b.ledger.Take(time.Unix(int64(n), 0), changes)
	for _, c := range changes {
		if c.Step == 0 {
			b.doing[c.Unit] = c
		}
	}
}

func (b *books) report(n int) *report.Goodput { return b.ledger.Report(time.Unix(int64(n), 0), "rank") }

// checkBooks checks that the ledger knows the activity of every unit, that its parts add up, and
// that only time without training is a cost.
func (w *world) checkBooks() error {
	s, n := w.state, len(w.history)
	w.books.keep(n, s.Changes())
	for id, c := range w.books.doing {
		switch {
		case id >= len(s.progress.units) || s.ending.finished:
			if c.To != goodput.Over {
				return fmt.Errorf("unit %d is no more, but does %v", id, c)
			}
		case c.Ranks != s.size(&s.progress.units[id]) && c.To != goodput.Over, !s.does(&s.progress.units[id], c.To):
			return fmt.Errorf("unit %d of %d ranks is %s, but does %v", id, s.size(&s.progress.units[id]), s.progress.units[id].phase, c)
		}
	}
	if s.budget.attempts > 0 && len(w.books.doing) < len(s.progress.units) {
		return fmt.Errorf("only %d of %d units are known", len(w.books.doing), len(s.progress.units))
	}
	r := w.books.report(n)
	if r != nil && s.gang() && r.Interruptions != s.progress.units[0].attempt {
		return fmt.Errorf("%d interruptions before attempt %d", r.Interruptions, s.progress.units[0].attempt)
	}
	return checkSums(r, w.books.seconds)
}

// beat makes rank 0 report a step now and then, which decides nothing. It uses no random number, so
// that it changes no world.
func (w *world) beat() error {
	n := len(w.history)
	if n%5 != 0 || len(w.state.plan.slots) == 0 {
		return nil
	}
	ev := job.Stepped{
		Node: w.state.plan.slots[0].Node.Name, Attempt: w.state.progress.units[0].attempt, Step: int64(n % 50), Ago: time.Duration(n%9) * time.Second,
	}
	actions, reason := w.state.Step(ev)
	w.history = append(w.history, record{ev, actions, reason, w.state.Stale()})
	if len(actions) > 0 || reason != "" {
		return fmt.Errorf("%v does %v: %s", ev, actions, reason)
	}
	return w.checkBooks()
}

func (s *State) does(u *unit, use goodput.Use) bool {
	switch {
	case s.ending.result != nil && u.live > 0:
		return use == goodput.Stopping
	case s.ending.result != nil:
		return use == goodput.Stopping || use == goodput.Over
	case u.phase == job.Running && u.starting == 0:
		return use == goodput.Training
	case u.phase == job.Running, u.phase == job.Preparing:
		return use == goodput.Starting
	case u.phase == job.Gathering:
		return use == goodput.Waiting
	}
	return use == spending(u.phase)
}

func checkSums(r *report.Goodput, seconds int) error {
	if r == nil {
		if seconds > 0 {
			return fmt.Errorf("no report of %d s", seconds)
		}
		return nil
	}
	idle := r.Starting + r.Stopping + r.Backoff + r.Waiting
	costs := 0.0
	for _, c := range r.Costs {
		costs += c.Hours
	}
	if math.Abs(r.Training+r.Lost+idle-r.Hours) > 1e-9 || math.Abs(r.Hours*3600-float64(seconds)) > 1e-6 || costs > idle+1e-9 {
		return fmt.Errorf("%d s are %+v", seconds, r)
	}
	return nil
}

// checkReplay checks that the same events at the same times give the same ledger.
func (w *world) checkReplay(replayed books) error {
	if n := len(w.history); !reflect.DeepEqual(replayed.report(n), w.books.report(n)) {
		return fmt.Errorf("the ledger was %+v, and is %+v", w.books.report(n), replayed.report(n))
	}
	w.books = replayed
	return nil
}
