package job

import (
	"fmt"
	"reflect"
	"testing"
)

// turn is one step of the job.
type turn struct {
	event   Event
	actions []Action
	reason  string
}

func (t turn) String() string {
	text := fmt.Sprintf("%v\n    = %s\n", t.event, t.reason)
	for _, a := range t.actions {
		text += fmt.Sprintf("    > %v\n", a)
	}
	return text
}

// TestReplay holds that the same events give the same actions and reasons, which is how a coordinator reads its journal.
func TestReplay(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		again := New(w.spec)
		for i, old := range w.history {
			actions, reason := again.Step(old.event)
			if replayed := (turn{old.event, actions, reason}); !reflect.DeepEqual(old, replayed) {
				t.Fatalf("world %d, step %d: first\n%vthen\n%v", seed, i, old, replayed)
			}
		}
	}
}
