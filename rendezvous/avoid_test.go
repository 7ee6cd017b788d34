package rendezvous

import (
	"testing"
	"time"
)

// TestANodeIsAvoided checks that new jobs avoid a node after its GPU has failed, for an hour or
// until the node has left in order. A restart of the coordinator does not change that.
func TestANodeIsAvoided(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		n1.tail = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
		u := h.user()
		breaks := func(id string) {
			t.Helper()
			s := task(id, 1, 1)
			s.Job.MaxRestarts, s.Job.ExcludeAfter, s.Job.ExcludeFor = 0, 2, time.Hour
			job := u.submit(s)
			n1.exitJob(id, 0, 1)
			if r := job.over(t); r.Code != 1 {
				t.Errorf("%+v", r)
			}
		}
		breaks("a")
		failed := time.Now()
		h.crash()
		h.start()
		time.Sleep(time.Minute)
		if x := u.at("n1").Excluded; len(x) != 1 || x[0].Job != "" || x[0].Why != "ecc-uncorrectable in job a" || !x[0].Until.Equal(failed.Add(time.Hour)) {
			t.Errorf("n1 is avoided: %+v", x)
		}
		b := u.submit(task("b", 1, 1))
		if n1.runs() != "" || n2.runs() != "b0" {
			t.Errorf("n1 has %q, n2 %q", n1.runs(), n2.runs())
		}
		n2.exitJob("b", 0, 0)
		b.over(t)
		time.Sleep(time.Hour)
		if x := u.at("n1").Excluded; x != nil {
			t.Errorf("n1 is avoided: %+v", x)
		}
		breaks("c")
		if _, err := u.Drain(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		<-n1.done
		h.joinAs(gpus(1, 1), forever)
		if n := u.at("n1"); n.Name == "" || n.Excluded != nil {
			t.Errorf("%+v", n)
		}
	})
}
