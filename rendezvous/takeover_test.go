package rendezvous

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// TestTakeover checks that ranks outlive their coordinator, and that all agents and clients
// continue with the next one.
func TestTakeover(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 3), forever), h.joinAs(gpus(2, 2), forever)
		u := h.user()
		a := u.submit(task("a", 2, 2))
		b := h.user().submit(detached(task("b", 1, 1)))
		waits := u.submit(task("c", 1, 2))
		before := u.job("a")
		h.crash()
		time.Sleep(lease / 3)
		h.start()
		time.Sleep(2 * time.Second)
		if got := n1.runs() + ", " + n2.runs(); got != "a0 b0, a0" {
			t.Errorf("%s run", got)
		}
		if s := u.job("a"); s.Phase != string(job.Running) || !s.Submitted.Equal(before.Submitted) || s.Attempt != 0 || len(s.Nodes) != 2 {
			t.Errorf("a: %+v", s)
		}
		if s := u.job("c"); s.Phase != string(job.Gathering) || s.Waits == "" {
			t.Errorf("c: %+v\n%s", s, waits.all())
		}
		for _, n := range []*agent{n1, n2} {
			n.exitJob("a", 0, 0)
		}
		if r := a.over(t); r.Code != 0 || r.Attempts != 1 || r.Restarts != 0 {
			t.Errorf("a: %+v", r)
		}
		synctest.Wait()
		if got := n1.runs() + ", " + n2.runs(); got != "b0 c0, " && got != "b0, c0" {
			t.Errorf("%s run after a", got)
		}
		n1.exitJob("b", 0, 0)
		if r := b.over(t); r.Code != 0 {
			t.Errorf("b: %+v", r)
		}
		n1.exitJob("c", 0, 0)
		n2.exitJob("c", 0, 0)
		if r := waits.over(t); r.Code != 0 {
			t.Errorf("c: %+v", r)
		}
		if births := h.births("a", 0) + h.births("a", 3) + h.births("b", 0); births != 3 {
			t.Errorf("%d starts of ranks 0 and 3 of a and 0 of b", births)
		}
		if text := h.warned(); strings.Contains(text, "taken over") {
			t.Error(text)
		}
	})
}

// TestSilentTakeover makes the coordinator's machine disappear. The agents get no end of their
// connections.
func TestSilentTakeover(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		h.user().submit(detached(task("a", 2, 1)))
		n1.cable.cut()
		n2.cable.cut()
		h.crash()
		h.start()
		n1.cable.mend()
		n2.cable.mend()
		time.Sleep(lease)
		if got := n1.runs() + ", " + n2.runs(); got != "a0, a0" {
			t.Fatalf("%s run", got)
		}
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		if r := h.user().watch("a").over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestTakeoverWhileRanksEnd makes ranks exit and fail while there is no coordinator.
func TestTakeoverWhileRanksEnd(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 2), forever)
		a, b := h.user().submit(task("a", 1, 1)), h.user().submit(detached(task("b", 1, 1)))
		h.crash()
		n1.exitJob("a", 0, 0)
		n1.exitJob("b", 0, 5)
		time.Sleep(time.Second)
		h.start()
		if r := a.over(t); r.Code != 0 {
			t.Errorf("a: %+v", r)
		}
		time.Sleep(5 * time.Second)
		if got := n1.runs(); got != "b1" {
			t.Errorf("%q run", got)
		}
		n1.exitJob("b", 1, 0)
		if r := b.over(t); r.Code != 0 || r.Attempts != 2 || r.Restarts != 1 {
			t.Errorf("b: %+v", r)
		}
	})
}

// TestTakeoverOfABackoff checks that the next coordinator starts the timers of a job again.
func TestTakeoverOfABackoff(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), func(attempt int) (int, bool) { return 9, attempt == 0 })
		s := detached(task("a", 1, 1))
		s.BackoffMin = 10 * time.Second
		h.user().submit(s)
		late := detached(task("late", 1, 9))
		late.PlacementTimeout = time.Hour
		at := time.Now() // a limit counts from its beginning, even if that was under an earlier coordinator
		h.user().submit(late)
		h.crash()
		time.Sleep(time.Second)
		h.start()
		if s := h.user().job("a"); s.Phase != string(job.Backoff) {
			t.Errorf("%+v", s)
		}
		time.Sleep(12 * time.Second)
		if got := n1.runs(); got != "a1" {
			t.Errorf("%q run", got)
		}
		if r := h.user().watch("late").over(t); r.Code != 124 || time.Since(at) != time.Hour {
			t.Errorf("%+v after %v", r, time.Since(at))
		}
	})
}

func TestFinishedJobsAreKept(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.joinAs(gpus(1, 1), func(int) (int, bool) { return 4, true })
		s := task("a", 1, 1)
		s.Job.MaxRestarts = 0
		r := h.user().submit(s).over(t)
		before := h.user().job("a")
		h.crash()
		h.start()
		if again := h.user().watch("a").over(t); again.Code != 4 || again.Reason != r.Reason || again.Cause.Why != r.Cause.Why {
			t.Errorf("%+v, was %+v", again, r)
		}
		after := h.user().job("a")
		if utc(after).Finished != utc(before).Finished || after.Phase != string(job.Finished) || after.Nodes[0] != "n1" || after.Title != "run a" {
			t.Errorf("%+v, was %+v", after, before)
		}
		if _, err := h.user().Submit(t.Context(), s); err == nil || !strings.Contains(err.Error(), "there is a job a already") {
			t.Errorf("%v", err)
		}
	})
}

// TestAgentThatDoesNotComeBack checks that an agent that does not come back is lost a lease and a
// kill time after the takeover. Its job then runs elsewhere.
func TestAgentThatDoesNotComeBack(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		h.crash()
		n1.cable.cut()
		n2 := h.joinLater(gpus(2, 1))
		h.start()
		at := time.Now()
		time.Sleep(time.Second)
		if n := h.user().at("n1"); n.Silent != time.Second || len(n.Holds) != 1 {
			t.Errorf("%+v", n)
		}
		time.Sleep(lease + killTime - 2*time.Second)
		if got := (<-n2).runs(); got != "" {
			t.Fatalf("%s run %v after the takeover", got, time.Since(at))
		}
		time.Sleep(3 * time.Second)
		if n := h.user().at("n2"); len(n.Holds) != 1 {
			t.Errorf("%+v\n%s", n, a.all())
		}
		want(t, a.all(), "n1 was lost: its agent was silent for 20s")
	})
}

// TestAShorterLease checks that only new agents get a shorter lease. Agents that have a longer
// lease from an earlier coordinator keep it.
func TestAShorterLease(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		for _, shorter := range []time.Duration{lease / 3, lease / 5} {
			h.crash()
			h.cfg.Lease, h.cfg.KillTime = shorter, time.Second
			h.start()
			time.Sleep(time.Second)
		}
		n2 := h.joinAs(gpus(2, 1), forever)
		n1.cable.cut()
		time.Sleep(lease + killTime - lease/3 - time.Second)
		if got := n1.runs() + n2.runs(); got != "a0" {
			t.Fatalf("%s run while ranks of the first attempt may live\n%s", got, a.all())
		}
		time.Sleep(lease/3 + 2*time.Second)
		if got := n2.runs(); got != "a1" {
			t.Errorf("%s runs", got)
		}
		want(t, a.all(), "n1 was lost: its agent was silent for 20s")
		n2.cable.cut()
		time.Sleep(lease/5 + 2*time.Second)
		want(t, a.all(), "n2 was lost: its agent was silent for 4s")
	})
}

// TestFreshAgentUnderAnAwaitedName checks that a fresh agent with the name of an absent agent waits
// until no rank of the absent agent can live.
func TestFreshAgentUnderAnAwaitedName(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		a := h.user().submit(detached(task("a", 1, 1)))
		h.crash()
		n1.die()
		h.start()
		at := time.Now()
		fresh := <-h.joinLater(gpus(1, 1))
		if took := time.Since(at); took < lease+killTime || took > lease+killTime+2*time.Second {
			t.Errorf("admitted after %v", took)
		}
		want(t, h.warned(), "an earlier agent of node n1 is silent, and its ranks may still run there, for 20s at most")
		time.Sleep(5 * time.Second)
		if got := fresh.runs(); got != "a1" {
			t.Errorf("%q run\n%s", got, a.all())
		}
		fresh.exitJob("a", 1, 0)
		if r := a.over(t); r.Code != 0 || r.Restarts != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// joinLater makes an agent join while there may be no coordinator.
func (h *hosted) joinLater(n placement.Node) <-chan *agent {
	joined := make(chan *agent, 1)
	go func() { joined <- h.joinAs(n, forever) }()
	return joined
}

func TestOrphansOfATakeoverEnd(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 2), forever)
		u := h.user()
		u.submit(task("a", 1, 1))
		u.submit(detached(task("b", 1, 1)))
		h.crash()
		u.cable.unreachable.Store(true)
		h.start()
		gone(t, h, "a", time.Now(), lease+wire.PatienceForReturn, lease+wire.PatienceForReturn)
		if got := n1.runs(); got != "b0" {
			t.Errorf("%q run", got)
		}
	})
}

// TestTakeoverTooLate starts the next coordinator when all leases are over. The agents have ended
// their ranks, and join as new agents.
func TestTakeoverTooLate(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		h.user().submit(detached(task("a", 1, 1)))
		h.crash()
		<-n1.done
		if n1.Err() == nil || n1.runs() != "" {
			t.Fatalf("%v, %q run", n1.Err(), n1.runs())
		}
		n1.Close("")
		h.start()
		fresh := <-h.joinLater(gpus(1, 1))
		time.Sleep(5 * time.Second)
		if got := fresh.runs(); got != "a1" {
			t.Errorf("%q run", got)
		}
	})
}

// TestTakeoverTwice crashes the coordinator repeatedly, sometimes before all agents are back.
func TestTakeoverTwice(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		a := h.user().submit(task("a", 2, 1))
		for i := range 20 {
			h.crash()
			time.Sleep(time.Duration(i*i) * 7 * time.Millisecond)
			h.start()
			time.Sleep(time.Duration(i*i) * 11 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		n1.exitJob("a", 0, 0)
		n2.exitJob("a", 0, 0)
		if r := a.over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		if h.births("a", 0) != 1 || h.births("a", 1) != 1 {
			t.Error("a rank was started twice")
		}
	})
}

// TestACoordinatorWithoutAStore checks that a coordinator without a log takes no agents over: the
// returning agents belong to another coordinator.
func TestACoordinatorWithoutAStore(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		h.user().submit(detached(task("a", 1, 1)))
		h.crash()
		h.serve(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		h.stop = cancel
		c := h.c
		h.ended = make(chan error, 1)
		go func(ended chan<- error) {
			defer close(ended)
			_, err := c.Run(ctx)
			ended <- err
		}(h.ended)
		<-n1.done
		want(t, n1.Err().Error(), "node n1 had joined another coordinator")
	})
}

// TestDrainedNodesStayDrained checks that drained nodes leave even if the coordinator that drained
// them is gone.
func TestDrainedNodesStayDrained(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		u.submit(detached(task("a", 1, 1)))
		if jobs, err := u.Drain(t.Context(), "n1"); err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		h.crash()
		h.start()
		time.Sleep(10 * time.Second)
		if n := u.at("n1"); !n.Drained {
			t.Errorf("%+v, want it drained", n)
		}
		u.submit(detached(task("b", 1, 1)))
		synctest.Wait()
		if n1.runs() != "a0" || n2.runs() != "b0" {
			t.Errorf("%s and %s run, want a and b", n1.runs(), n2.runs())
		}
		n1.exitJob("a", 0, 0)
		synctest.Wait()
		if n1.left != "it was drained" {
			t.Errorf("it left because of %q", n1.left)
		}
	})
}
