package rendezvous

import (
	"testing"
	"testing/synctest"
	"time"
)

// gone checks how a job ended whose client has disappeared, as another client sees it.
func gone(t *testing.T, h *hosted, id string, at time.Time, least, most time.Duration) {
	t.Helper()
	r := h.user().watch(id).over(t)
	if r.Code != codeOrphaned || r.Reason != "job cancelled: the client that submitted it is gone" {
		t.Errorf("%s: %+v", id, r)
	}
	if after := time.Since(at); after < least || after > most {
		t.Errorf("%s was cancelled after %v, want %v to %v", id, after, least, most)
	}
}

func TestJobOfADeadClientEnds(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 2), forever)
		u := h.user()
		a, b := u.submit(task("a", 1, 1)), u.submit(detached(task("b", 1, 1)))
		at := time.Now()
		u.cable.unreachable.Store(true)
		u.cable.newest().end(nil)
		synctest.Wait()
		if got := n1.runs(); got != "b0" {
			t.Errorf("%s run without the client", got)
		}
		gone(t, h, "a", at, 0, 0)
		n1.exitJob("b", 0, 0)
		if r := h.user().watch("b").over(t); r.Code != 0 {
			t.Errorf("b: %+v", r)
		}
		for _, s := range []*sight{a, b} {
			if <-s.done; s.err == nil {
				t.Errorf("the client of %s did not notice", s.Job)
			}
		}
	})
}

// TestJobOfASilentClientEnds checks that the job of a silent client ends once the client cannot
// come back: after the coordinator's own probes and a lease.
func TestJobOfASilentClientEnds(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 2), forever)
		u := h.user()
		u.submit(task("a", 1, 1))
		u.submit(detached(task("b", 1, 1)))
		u.cable.cut()
		gone(t, h, "a", time.Now(), lease, 40*time.Second+lease)
		if got := n1.runs(); got != "b0" {
			t.Errorf("%s run", got)
		}
	})
}

func TestJobOfAClientThatIsBackGoesOn(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		u := h.user()
		a := u.submit(task("a", 1, 1))
		u.cable.cut()
		time.Sleep(40*time.Second + lease/2)
		u.cable.mend()
		time.Sleep(time.Hour)
		if got := n1.runs(); got != "a0" {
			t.Fatalf("%q run", got)
		}
		n1.exitJob("a", 0, 0)
		if r := a.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestAClosedWatchGivesTheJobUp checks that the job ends when its owner closes the watch. Another
// client's watch does not keep the job alive.
func TestAClosedWatchGivesTheJobUp(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.joinAs(gpus(1, 1), forever)
		u := h.user()
		a := u.submit(task("a", 1, 1))
		onlooker := h.user().watch("a")
		at := time.Now()
		a.Close()
		gone(t, h, "a", at, lease, lease)
		if r := onlooker.over(t); r.Code != codeOrphaned {
			t.Errorf("%+v", r)
		}
	})
}

// TestSlowClient has a client that does not read its messages. The coordinator disconnects the
// client, delays no other client, and gives the client the result when it reads again.
func TestSlowClient(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		const failures = 1000
		n1 := h.joinAs(gpus(1, 1), func(attempt int) (int, bool) { return 1, attempt < failures })
		s := task("a", 1, 1)
		s.Job.MaxRestarts, s.BackoffMin = failures, 0
		w, err := h.user().Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		synctest.Wait()
		if n1.attempts() != failures+1 || time.Since(at) != 0 {
			t.Fatalf("%d attempts in %v", n1.attempts(), time.Since(at))
		}
		slow := see(t, w)
		n1.exitJob("a", failures, 0)
		if r := slow.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		if told := len(slow.told); told > 3*failures {
			t.Errorf("%d updates were kept for it", told)
		}
	})
}
