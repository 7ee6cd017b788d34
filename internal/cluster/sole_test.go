package cluster

import (
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
)

// TestSoleNodesComeBack: a node of the only job that is back after a takeover has rejoined, and has not come anew.
func TestSoleNodesComeBack(t *testing.T) {
	spec := Spec{Sole: true, Job: job.Spec{ID: "j1", Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}}}}
	n1 := placement.Node{Name: "n1"}
	s := New()
	if _, err := s.Restore(spec, []job.Event{job.Submitted{}, job.Joined{Node: n1}}); err != nil {
		t.Fatal(err)
	}
	s.Resume()
	for i, want := range []job.Event{job.Rejoined{Node: "n1"}, job.Joined{Node: n1}} { // the second time it was not awaited
		o := s.Step(Joined{Node: n1})
		if len(o.Steps) != 1 || !reflect.DeepEqual(o.Steps[0].Event, want) {
			t.Errorf("%d: %+v, want %+v", i, o.Steps, want)
		}
	}
}
