package session

import (
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func TestUpdatesArrive(t *testing.T) {
	d, p, r := wiretest.Filled[report.Decision](), wiretest.Filled[placement.Plan](), wiretest.Filled[report.Result]()
	d.Result = nil // it comes in an update of its own
	for _, u := range []wire.Update{{Decision: &d}, {Granted: &p}, {Result: &r}} {
		var w Watch
		if got, ok := w.take(wiretest.Whole(t, wire.FromUpdate(u))); !ok || !reflect.DeepEqual(got, u) {
			t.Errorf("got  %+v\nwant %+v", got, u)
		}
	}
}

// TestMorePositionsThanFit leaves out positions in old attempts; their output is delivered again
// and dropped.
func TestMorePositionsThanFit(t *testing.T) {
	r := &LogReader{known: map[report.LogPosition]known{}}
	for rank := range 20_000 {
		for attempt := range 3 {
			r.known[report.LogPosition{Attempt: attempt, Rank: rank, Stream: 1}] = known{1 << 62, fmt.Sprintf("%0253d", 3*rank+attempt)}
		}
	}
	size, attempts := 0, map[int]int{}
	for _, m := range wire.FromInquiry(wire.Inquiry{Job: "a"}, r.from()) {
		size += proto.Size(m)
		for _, f := range m.GetFrom() {
			for _, at := range f.GetAt() {
				attempts[int(at.GetAttempt())]++
			}
		}
	}
	if size > wire.MaxRequest || attempts[2] != 20_000 || attempts[1] == 0 || attempts[0] != 0 {
		t.Errorf("%d bytes of attempts %v", size, attempts)
	}
}

func TestNoProofIsNoCommitment(t *testing.T) {
	if c := (Options{}).commitment(); c != nil {
		t.Errorf("%x", c)
	}
}
