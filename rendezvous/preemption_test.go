package rendezvous

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
)

// TestAPreemptionIsTakenOver kills the leading coordinator while a job on two nodes gives way to
// another job. It does so when the ranks have notice, when the ranks of one node are ready, and
// when the ranks of one node have ended. Each job always has both nodes or none.
func TestAPreemptionIsTakenOver(t *testing.T) {
	for _, when := range []string{"noticed", "half ready", "half stopped"} {
		t.Run(when, func(t *testing.T) {
			several(t, func(t *testing.T, h *headed) {
				h.startAll()
				h.joinAll(2)
				first, second := h.agents[0], h.agents[1]
				run := func(want string) func() bool {
					return func() bool { return first.runs()+" and "+second.runs() == want }
				}
				takeOver := func() {
					before := first.runs() + " and " + second.runs()
					addr, _ := h.lead()
					h.kill(addr)
					h.lead()
					time.Sleep(lease)
					if after := first.runs() + " and " + second.runs(); after != before {
						t.Errorf("the nodes run %s, and %s after the takeover", before, after)
					}
				}
				night, urgent := task("night", 2, 2), task("urgent", 2, 2)
				night.Priority, night.Job.DrainTime, urgent.Priority = cluster.Batch, time.Hour, cluster.Production
				ann := h.client()
				preempted := ann.submit(detached(night))
				eventually(t, "the batch job", run("night0 and night0"))
				preempting := ann.submit(detached(urgent))
				eventually(t, "a notice on both nodes", func() bool { return first.noticed() && second.noticed() })
				if when == "noticed" {
					takeOver()
				}
				first.ready("night")
				if when == "half ready" {
					takeOver()
				}
				second.mu.Lock()
				second.ignoresStop = true
				second.mu.Unlock()
				second.ready("night")
				eventually(t, "the end of the first node's ranks", run(" and night0"))
				if when == "half stopped" {
					takeOver()
				}
				second.exitJob("night", 0, 143)
				eventually(t, "the other job", run("urgent0 and urgent0"))
				first.exitJob("urgent", 0, 0)
				second.exitJob("urgent", 0, 0)
				if r := preempting.over(t); r.Code != 0 || r.Attempts != 1 {
					t.Errorf("%+v", r)
				}
				eventually(t, "the batch job again", run("night1 and night1"))
				first.exitJob("night", 1, 0)
				second.exitJob("night", 1, 0)
				if r := preempted.over(t); r.Code != 0 || r.Attempts != 2 || r.Restarts != 0 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// noticed reports whether ranks of this agent have had notice.
func (a *agent) noticed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.notices) > 0
}

// ready reports that the ranks of a job on this node are ready to end.
func (a *agent) ready(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.share(id).units {
		u.say(a, id, job.Ready{Unit: u.Unit, Attempt: u.Attempt})
	}
}
