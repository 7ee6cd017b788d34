package jobstate

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
)

// crash ends the coordinator after it has written down an event and has given only some of the
// orders. The next coordinator reads the events without the stale ones, or a snapshot of the state.
// All agents then join it again.
func (w *world) crash(actions []job.Action) error {
	orders := w.orders(actions)
	w.perform(orders[:w.rng.IntN(len(orders)+1)])
	again := New(w.spec)
	replayed := books{doing: map[int]goodput.Change{}}
	for i, old := range w.history {
		if old.stale {
			replayed.keep(i+1, nil)
			continue
		}
		again.Step(old.event)
		replayed.keep(i+1, again.Changes())
	}
	if !w.state.equals(again) {
		return fmt.Errorf("the state was\n%+v\nand is\n%+v", w.state, again)
	}
	if err := w.checkReplay(replayed); err != nil {
		return err
	}
	w.state = again.clone()
	for _, a := range w.agents {
		if err := w.reconnect(a); err != nil {
			return err
		}
	}
	return nil
}

// orders returns the actions that a crash may lose. Deadlines and the end of the job survive a
// crash.
func (w *world) orders(actions []job.Action) (orders []job.Action) {
	for _, a := range actions {
		switch a.(type) {
		case job.Wait, job.Alarm:
			w.perform([]job.Action{a})
		default:
			orders = append(orders, a)
		}
	}
	return orders
}
