package rendezvous

import (
	"reflect"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestGoodput has a job that trains for three hours and fails once. For half an hour it loses a
// node, and also the coordinator.
func TestGoodput(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 2), forever), h.joinAs(gpus(2, 2), forever)
		s := detached(task("a", 2, 2))
		s.BackoffMin = 0
		a := h.user().submit(s)
		time.Sleep(time.Hour)
		if r := h.user().job("a").Goodput; r == nil || r.Goodput != 1 || r.Hours != 4 || r.Unit != "GPU" || r.Interruptions != 0 {
			t.Errorf("after an hour: %+v", r)
		}
		n2.exitJob("a", 0, 9)
		time.Sleep(time.Hour)
		n2.die()
		time.Sleep(10 * time.Minute)
		before := h.user().job("a").Goodput
		h.crash()
		h.start()
		if after := h.user().job("a").Goodput; before == nil || !reflect.DeepEqual(after, before) {
			t.Errorf("after the takeover: %+v, before: %+v", after, before)
		}
		time.Sleep(20 * time.Minute)
		n3 := h.joinAs(gpus(3, 2), forever)
		time.Sleep(time.Hour)
		if got := n1.runs() + ", " + n3.runs(); got != "a2, a2" {
			t.Fatalf("%s run\n%s", got, a.all())
		}
		n1.exitJob("a", 2, 0)
		n3.exitJob("a", 2, 0)
		r := h.user().watch("a").over(t).Goodput
		want := &report.Goodput{
			Unit: "GPU", Goodput: 12. / 14, Hours: 14, Training: 12, Waiting: 2, Interruptions: 2,
			Costs: []report.Cost{
				{Cause: "node-lost", Node: "n2", Interruptions: 1, Hours: 2},
				{Cause: "unknown", Node: "n2", Interruptions: 1},
			},
		}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("got  %+v\nwant %+v", r, want)
		}
		h.crash()
		h.start()
		if j := h.user().job("a"); !reflect.DeepEqual(j.Goodput, r) || !reflect.DeepEqual(j.Result.Goodput, r) {
			t.Errorf("at last %+v, was %+v", j.Goodput, r)
		}
	})
}
