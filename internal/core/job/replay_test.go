package job

import (
	"fmt"
	"reflect"
	"testing"
)

// turn is one step of the job, with what is recorded of its event; a stale one is not.
type turn struct {
	event   Event
	actions []Action
	reason  string
	stale   bool
}

func (t turn) String() string {
	text := fmt.Sprintf("%v\n    = %s\n", t.event, t.reason)
	for _, a := range t.actions {
		text += fmt.Sprintf("    > %v\n", a)
	}
	return text
}

// TestReplay holds that the same events give the same actions and reasons, which is how a
// coordinator reads its journal.
func TestReplay(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		again := New(w.spec)
		for i, old := range w.history {
			actions, reason := again.Step(old.event)
			if replayed := (turn{old.event, actions, reason, again.Stale()}); !reflect.DeepEqual(old, replayed) {
				t.Fatalf("world %d, step %d: first\n%vthen\n%v", seed, i, old, replayed)
			}
		}
	}
}

// TestStale holds that a stale event is one that changes nothing and has no answer, and that there
// are no others. That ranks still stand still is told again and again, but need not be as it was.
func TestStale(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		s := New(w.spec)
		for i, old := range w.history {
			before := s.clone()
			actions, reason := s.Step(old.event)
			nothing := before.equals(s) && len(actions) == 0 && len(s.Changes()) == 0 && reason == ""
			if s.Stale() != nothing && !isA[Stalled](old.event) {
				t.Fatalf("world %d, step %d: stale is %v, changes nothing %v:\n%v", seed, i, s.Stale(), nothing, old)
			}
		}
	}
}
