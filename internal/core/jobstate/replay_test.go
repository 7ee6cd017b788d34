package jobstate

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
)

// record is one step of the job in the log, which omits stale events.
type record struct {
	event   job.Event
	actions []job.Action
	reason  string
	stale   bool
}

func (t record) String() string {
	text := fmt.Sprintf("%v\n    = %s\n", t.event, t.reason)
	for _, a := range t.actions {
		text += fmt.Sprintf("    > %v\n", a)
	}
	return text
}

// TestReplay checks that the same events give the same actions and reasons, because a coordinator
// restores its state from its log in this way.
func TestReplay(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		again := New(w.spec)
		for i, old := range w.history {
			actions, reason := again.Step(old.event)
			if replayed := (record{old.event, actions, reason, again.Stale()}); !reflect.DeepEqual(old, replayed) {
				t.Fatalf("world %d, step %d: first\n%vthen\n%v", seed, i, old, replayed)
			}
		}
	}
}

// TestStale checks that an event is stale if and only if it changes nothing and has no answer.
// Repeated reports about ranks that stand still are exempt.
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
			if s.Stale() != nothing && !isA[job.Stalled](old.event) {
				t.Fatalf("world %d, step %d: stale is %v, changes nothing %v:\n%v", seed, i, s.Stale(), nothing, old)
			}
		}
	}
}
