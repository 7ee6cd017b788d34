package job

import (
	"fmt"
	"reflect"

	"github.com/golaunch/golaunch/internal/goodput"
)

// crash ends the coordinator after it has written an event down, with only some of the actions done. The next one reads the
// events but for the stale ones, or a copy of the state, sets the timers anew and finds all agents again.
func (w *world) crash(actions []Action) error {
	w.perform(actions[:w.rng.IntN(len(actions)+1)])
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
	w.state, w.timers = again.clone(), nil
	resumed := again.Resume()
	if err := w.truth.checkResume(resumed); err != nil {
		return fmt.Errorf("after a crash: %v: %w", resumed, err)
	}
	w.perform(resumed)
	for _, a := range w.agents {
		if err := w.reconnect(a); err != nil {
			return err
		}
	}
	return nil
}

// checkResume holds that only what is due is repeated, and the end if it has come.
func (t *truth) checkResume(actions []Action) error {
	if t.result != nil {
		if want := []Action{Finish{*t.result}}; !reflect.DeepEqual(actions, want) {
			return fmt.Errorf("want %v", want)
		}
		return nil
	}
	for _, act := range actions {
		switch act := act.(type) {
		case Wait:
			if err := t.checkWait(act); err != nil {
				return err
			}
		case Alarm:
			if act.Seq != t.alarms[act.Kind] && act.Kind != AlarmDeparture {
				return fmt.Errorf("the newest is #%d", t.alarms[act.Kind])
			}
		default:
			return fmt.Errorf("%v is not to be repeated", act)
		}
	}
	return t.checkAlarms(actions)
}
