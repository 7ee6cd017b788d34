package rendezvous

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestCharges has a node with four GPUs. After an hour, a job starts that holds two of them. A
// restarted coordinator continues to count, and a lost node costs nothing more.
func TestCharges(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.crash()
		kind := newCloud().toy()
		kind.Cost = 2.5
		h.cfg.Capacity = []Capacity{kind}
		h.start()
		shows := func(when string, used, idle float64) {
			t.Helper()
			s := h.user().status()
			want := []report.Charge{{Kind: "toy", Price: 2.5, Idle: true, NodeHours: idle, GPUHours: 4 * idle}}
			if used > 0 {
				of := report.Charge{Kind: "toy", Price: 2.5, NodeHours: used, GPUHours: 4 * used}
				want = append([]report.Charge{of}, want...)
				if got := rounded(s.Jobs[0].Charges); !slices.Equal(got, want[:1]) {
					t.Errorf("%s: the job is charged for %+v", when, got)
				}
			}
			if got := rounded(s.Charges); !slices.Equal(got, want) || s.Counted.IsZero() {
				t.Errorf("%s: %+v, not %+v", when, got, want)
			}
		}
		node := gpus(1, 4)
		node.Labels = map[string]string{capacity.KindLabel: "toy"}
		n1 := h.joinAs(node, forever)
		time.Sleep(time.Hour)
		shows("after an hour", 0, 1)
		h.user().submit(detached(task("a", 1, 2)))
		time.Sleep(time.Hour)
		shows("after an hour of the job", 0.5, 1.5)
		h.crash()
		h.start()
		shows("after the takeover", 0.5, 1.5)
		time.Sleep(time.Hour)
		shows("an hour later", 1, 2)
		n1.die()
		time.Sleep(time.Hour)
		shows("an hour after the loss of the node", 1, 2)
	})
}

// rounded rounds hours, so that the result does not depend on how long a step takes.
func rounded(all []report.Charge) (rounded []report.Charge) {
	for _, c := range all {
		c.NodeHours, c.GPUHours = math.Round(100*c.NodeHours)/100, math.Round(100*c.GPUHours)/100
		rounded = append(rounded, c)
	}
	return rounded
}
