package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func TestJobsShareACluster(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 2), forever), h.joinAs(gpus(2, 2), forever)
		ann, bob := h.user(), h.user()
		a := ann.submit(task("a", 1, 2))
		b := bob.submit(task("b", 1, 1))
		c := bob.submit(task("c", 2, 1))
		if got := n1.runs() + ", " + n2.runs(); got != "a0, b0" {
			t.Fatalf("%s run", got)
		}
		want(t, c.all(), "in the queue", "cannot place the job yet")
		if got := n1.jobs["a"].task; got != "task of a" {
			t.Errorf("task %q", got)
		}
		if s := ann.job("c"); s.Phase != string(job.Gathering) || s.Waits == "" || s.Waits != c.told[len(c.told)-1] || s.Nodes != nil {
			t.Errorf("%+v waits", s)
		}
		n1.exitJob("a", 0, 0)
		if r := a.over(t); r.Code != 0 || r.Attempts != 1 {
			t.Errorf("a: %+v", r)
		}
		synctest.Wait()
		if got := n1.runs() + ", " + n2.runs(); got != "c0, b0 c0" {
			t.Errorf("%s run when a is over\n%s", got, c.all())
		}
		if _, heard := n1.finished["a"]; !heard {
			t.Error("n1 does not know the end of a")
		}
		n2.exitJob("b", 0, 3)
		time.Sleep(2 * time.Second)
		if got := n2.runs(); got != "b1 c0" {
			t.Errorf("%s run after b failed", got)
		}
		want(t, b.all(), "rank 0 on n2", "exited with code 3")
		want(t, strings.Join(b.news, "\n"), "rank 0 on n2 (gpu 0) exited with code 3", "restart 1 of 3")
		if len(b.news) != 2 {
			t.Errorf("news %q", b.news)
		}
		for _, n := range []*agent{n1, n2} {
			n.exitJob("b", 1, 0)
			n.exitJob("c", 0, 0)
		}
		if r := b.over(t); r.Code != 0 || r.Restarts != 1 {
			t.Errorf("b: %+v", r)
		}
		if r := c.over(t); r.Code != 0 {
			t.Errorf("c: %+v", r)
		}
		if got := bob.watch("a").over(t); got.Code != 0 || got.Reason != a.result.Reason {
			t.Errorf("a watched after its end: %+v", got)
		}
	})
}

func TestStatus(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		since := time.Now()
		a := h.joinAs(gpus(1, 2), forever)
		h.joinAs(gpus(2, 1), forever)
		u := h.user()
		time.Sleep(time.Second)
		u.submit(detached(task("a", 1, 2)))
		time.Sleep(time.Second)
		u.submit(task("b", 1, 1))
		s := u.status()
		if !s.Since.Equal(since) || s.Version != version.String() || len(s.Nodes) != 2 || len(s.Jobs) != 2 {
			t.Fatalf("%+v", s)
		}
		n := s.Nodes[0]
		if n.GPUs[1].HeldBy != "job a" {
			t.Errorf("held by %q", n.GPUs[1].HeldBy)
		}
		n.GPUs[0].HeldBy, n.GPUs[1].HeldBy = "", ""
		want := statusOf(gpus(1, 2))
		want.Holds = []report.Holding{{Job: "a", GPUs: []int{0, 1}}}
		if !reflect.DeepEqual(n, want) {
			t.Errorf("n1: %+v", n)
		}
		if got, want := s.Jobs[0], (report.JobStatus{
			ID: "a", Title: "run a", Phase: string(job.Running), Priority: "interactive", Waits: "2 ranks to end", Submitted: since.Add(time.Second), Detached: true,
			MaxRestarts: 3, Nodes: []string{"n1"}, Ranks: 2, GPUs: 2, Goodput: s.Jobs[0].Goodput, // see TestGoodput
			History: s.Jobs[0].History, Start: s.Jobs[0].Start, // see TestStart of replica
			Charges: s.Jobs[0].Charges, // see TestCharges
		}); !reflect.DeepEqual(utc(got), utc(want)) {
			t.Errorf("a: %+v", got)
		}
		if j := s.Jobs[1]; j.ID != "b" || !slices.Equal(j.Nodes, []string{"n2"}) || j.Detached {
			t.Errorf("b: %+v", j)
		}
		a.exitJob("a", 0, 0)
		time.Sleep(time.Second)
		if j := u.job("a"); j.Phase != string(job.Finished) || j.Result == nil || j.Result.Code != 0 || j.Finished.IsZero() || j.Waits != j.Result.Reason {
			t.Errorf("a: %+v", j)
		}
	})
}

// utc makes times comparable.
func utc(s report.JobStatus) report.JobStatus {
	s.Submitted, s.Finished = s.Submitted.UTC(), s.Finished.UTC()
	return s
}

func TestStop(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 3), forever)
		u := h.user()
		a, b, c, d := u.submit(task("a", 1, 1)), u.submit(task("b", 1, 1)), u.submit(task("c", 1, 1)), u.submit(task("d", 1, 1))
		stop := func(id string) []string {
			t.Helper()
			ids, err := u.Stop(t.Context(), id, 143, "enough of it")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(ids)
			return ids
		}
		if got := stop("b"); !slices.Equal(got, []string{"b"}) {
			t.Errorf("stopped %v", got)
		}
		if r := b.over(t); r.Code != 143 || r.Reason != "job cancelled: enough of it" {
			t.Errorf("b: %+v", r)
		}
		if got := stop("b"); len(got) != 0 {
			t.Errorf("stopped %v again", got)
		}
		synctest.Wait()
		if got := n1.runs(); got != "a0 c0 d0" {
			t.Errorf("%s run", got)
		}
		n1.ignoresStop = true
		stop("a")
		synctest.Wait()
		stop("a")
		synctest.Wait()
		if len(n1.stops) != 3 || n1.stops[1].Kill || n1.stops[1].Grace != 30*time.Second || !n1.stops[2].Kill {
			t.Errorf("ordered to stop b, a and a: %+v", n1.stops)
		}
		want(t, a.all(), "job cancelled: enough of it", "cancelled again: killing")
		n1.ignoresStop = false
		n1.exitJob("a", 0, 137)
		if r := a.over(t); r.Code != 143 {
			t.Errorf("a: %+v", r)
		}
		if got := stop(""); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("stopped %v of all", got)
		}
		for _, s := range []*sight{c, d} {
			if r := s.over(t); r.Code != 143 {
				t.Errorf("%s: %+v", s.Job, r)
			}
		}
	})
}

func TestSignalReachesOneJob(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2, n3 := h.joinAs(gpus(1, 2), forever), h.joinAs(gpus(2, 1), forever), h.joinAs(gpus(3, 1), forever)
		u := h.user()
		u.submit(task("a", 2, 1))
		u.submit(task("b", 1, 1))
		if got := n1.runs() + "," + n2.runs() + "," + n3.runs(); got != "a0 b0,a0," && got != "a0,a0,b0" && got != "b0,a0,a0" && got != "a0,b0,a0" {
			t.Fatalf("%s run", got)
		}
		if err := u.Signal(t.Context(), "a", syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range []*agent{n1, n2, n3} {
			var want []string
			if n.jobs["a"] != nil {
				want = []string{"a:10"}
			}
			if !slices.Equal(n.signals, want) {
				t.Errorf("%s has got %v, want %v", n.Node.Name, n.signals, want)
			}
		}
	})
}

func TestDrain(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 1), forever), h.joinAs(gpus(2, 1), forever)
		u := h.user()
		a := u.submit(task("a", 1, 1))
		jobs, err := u.Drain(t.Context(), "n1")
		if err != nil || !slices.Equal(jobs, []string{"a"}) {
			t.Fatalf("%v, %v", jobs, err)
		}
		b, c := u.submit(task("b", 1, 1)), u.submit(task("c", 1, 1))
		if n := u.at("n1"); !n.Drained || n1.left != "" || n2.runs() != "b0" {
			t.Errorf("%+v, left %q, n2 runs %s", n, n1.left, n2.runs())
		}
		n1.exitJob("a", 0, 0)
		a.over(t)
		<-n1.done
		synctest.Wait()
		if n1.left != "it was drained" || len(n1.starts) != 1 {
			t.Errorf("left for %q after %d starts", n1.left, len(n1.starts))
		}
		if n := u.at("n1"); n.Name != "" {
			t.Errorf("%+v is still there", n)
		}
		n2.exitJob("b", 0, 0)
		b.over(t)
		synctest.Wait()
		if jobs, err := u.Drain(t.Context(), "n2"); err != nil || !slices.Equal(jobs, []string{"c"}) {
			t.Fatalf("%v, %v", jobs, err)
		}
		n2.exitJob("c", 0, 0)
		c.over(t)
		<-n2.done
		n3 := h.joinAs(gpus(3, 1), forever)
		if jobs, err := u.Drain(t.Context(), "n3"); err != nil || jobs != nil {
			t.Errorf("%v, %v", jobs, err)
		}
		<-n3.done
	})
}

func TestReservation(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1, n2 := h.joinAs(gpus(1, 2), forever), h.joinAs(gpus(2, 2), forever)
		u := h.user()
		s := task("res", 2, 1)
		s.Reserve = true
		res := u.submit(s)
		if len(res.granted) != 1 || len(res.granted[0].Groups) != 2 {
			t.Fatalf("granted %+v\n%s", res.granted, res.all())
		}
		inner := task("in", 2, 1)
		inner.Within = "res"
		in := u.submit(inner)
		if n1.runs() != "in0" || n2.runs() != "in0" {
			t.Errorf("%s and %s run", n1.runs(), n2.runs())
		}
		if again := u.watch("res"); len(again.granted) != 1 || !reflect.DeepEqual(again.granted[0], res.granted[0]) {
			t.Errorf("a later watch was granted %+v", again.granted)
		}
		if _, err := u.Stop(t.Context(), "res", 143, "released"); err != nil {
			t.Fatal(err)
		}
		if r := in.over(t); r.Code != 143 {
			t.Errorf("in: %+v", r)
		}
		if r := res.over(t); r.Code != 143 {
			t.Errorf("res: %+v", r)
		}
	})
}

// TestFailureRulesOfASubmission has 8 KiB of rules. Only the last rule matches the failure.
func TestFailureRulesOfASubmission(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		n1.tail = "licence server at 10.0.0.9 refused\n"
		s := task("a", 1, 1)
		s.Job.Rules = strings.Repeat("wait  other  /another thing/\n# a comment\n", 200) + "stop  licence  /licence server .* refused/  ask for a candidate\n"
		a := h.user().submit(s)
		n1.exitJob("a", 0, 1)
		if r := a.over(t); r.Restarts != 0 || !strings.Contains(r.Reason, "licence") {
			t.Errorf("%+v", r)
		}
	})
}

func TestPlacementTimeoutOfASubmission(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		s := task("a", 1, 1)
		s.PlacementTimeout = time.Hour
		at := time.Now()
		a := h.user().submit(s)
		if r := a.over(t); r.Code != 124 || time.Since(at) != time.Hour {
			t.Errorf("%+v after %v", r, time.Since(at))
		}
	})
}

func TestWrongRequests(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		u := h.user()
		u.submit(task("a", 1, 1))
		submit := func(s replica.Submission) error {
			_, err := u.Submit(t.Context(), s)
			return err
		}
		empty := task("b", 1, 1)
		empty.Job.Request = placement.Request{}
		within := task("b", 1, 1)
		within.Within = "nowhere"
		watch := func(id string) error { _, err := u.Watch(t.Context(), id); return err }
		read := func(id string) error {
			r, err := u.Logs(t.Context(), id, report.LogFilter{Attempt: -1})
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = r.Next(t.Context())
			return err
		}
		stop := func(id string) error { _, err := u.Stop(t.Context(), id, 1, ""); return err }
		drain := func(node string) error { _, err := u.Drain(t.Context(), node); return err }
		status := func(id string) error { _, err := u.Job(t.Context(), id); return err }
		for _, c := range []struct {
			err      error
			text     string
			notThere bool
		}{
			{submit(task("a", 1, 1)), "there is a job a already", false},
			{submit(task("", 1, 1)), `"" is no job id`, false},
			{submit(task("../etc", 1, 1)), `"../etc" is no job id`, false},
			{submit(empty), "node", false},
			{submit(within), "there is no reservation nowhere", false},
			{watch("x"), `there is no job "x" here`, true},
			{read("x"), `there is no job "x" here`, true},
			{stop("x"), `there is no job "x" here`, true},
			{u.Signal(t.Context(), "x", syscall.SIGUSR1), `there is no job "x" here`, true},
			{status("x"), `there is no job "x" here`, true},
			{drain("n\x1b"), `there is no node "n\x1b" here`, true},
		} {
			r, ok := errors.AsType[*session.RequestError](c.err)
			if !ok || !r.Bad || r.NotThere != c.notThere {
				t.Errorf("%v, want a RequestError with %q", c.err, c.text)
				continue
			}
			want(t, r.Why, c.text)
		}
		if got := len(u.status().Jobs); got != 1 {
			t.Errorf("%d jobs", got)
		}
	})
}

// TestTooManyJobs has as many jobs as a coordinator accepts.
func TestTooManyJobs(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.c.post(func() {
			for i := range wire.MaxJobs {
				s := task(fmt.Sprint("job", i), 1, 1)
				h.c.track(&replica.Record{Submission: s})
			}
		})
		u := h.user()
		_, err := u.Submit(t.Context(), task("a", 1, 1))
		if r, ok := errors.AsType[*session.RequestError](err); !ok || r.Bad {
			t.Fatalf("%v", err)
		}
		want(t, err.Error(), "10000 jobs here are not over")
		h.c.post(func() { delete(h.c.jobs, "job7") })
		if _, err := u.Submit(t.Context(), task("a", 1, 1)); err != nil {
			t.Error(err)
		}
	})
}

// TestOtherVersions checks that a client and a coordinator of different versions refuse each other.
func TestOtherVersions(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		m := wire.FromSubmission(task("a", 1, 1))
		m[0].Protocol = 99
		err := h.submits(m)
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("%v", err)
		}
		want(t, err.Error(), "do not understand each other")
	})
}

// TestNoCluster submits a job to the coordinator of a single job.
func TestNoCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c, err := session.Connect(t.Context(), session.ClientOptions{Target: "head:1", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return w.dial(ctx) }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Submit(t.Context(), task("a", 1, 1))
		if r, ok := errors.AsType[*session.RequestError](err); !ok || r.Bad {
			t.Errorf("%v", err)
		} else {
			want(t, r.Why, "this coordinator runs one job, j1, and no others")
		}
		if s, err := c.Job(t.Context(), "j1"); err != nil || s.Phase != string(job.Gathering) {
			t.Errorf("%+v, %v", s, err)
		}
		c.Close()
		w.c.Cancel(130, "enough")
		<-w.result
	})
}
