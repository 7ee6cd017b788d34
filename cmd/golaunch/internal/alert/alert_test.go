package alert

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/straggler"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestRankAlert: each alert has its level and its words, and the worst counts.
func TestRankAlert(t *testing.T) {
	now := time.Unix(1e6, 0)
	of := Norms{ranks: 16, StepTime: 1, step: 100, at: now, use: 0.97, power: 500, powerSpread: 5}
	for _, c := range []struct {
		name   string
		change func(*view.Rank, *view.Node)
		level  Level
		why    string
	}{
		{"all well", func(*view.Rank, *view.Node) {}, Fine, ""},
		{"ended well", func(r *view.Rank, _ *view.Node) { r.Exit = &report.Exit{} }, Fine, ""},
		{"ended badly", func(r *view.Rank, _ *view.Node) { r.Exit = &report.Exit{Code: 1} }, Bad, "ended: exit 1"},
		{"killed", func(r *view.Rank, n *view.Node) { r.Exit, n.Silent = &report.Exit{Code: 137, Signal: 9}, time.Minute }, Bad, "ended: died of SIGKILL"},
		{"silent node", func(_ *view.Rank, n *view.Node) { n.Silent = 7 * time.Second }, Bad, "node silent for 7s"},
		{"missing node", func(_ *view.Rank, n *view.Node) { n.Missing = "it is busy" }, Warn, "not measured: it is busy"},
		{"late", func(r *view.Rank, _ *view.Node) { r.Now.BeatAge = 45 }, Warn, "no heartbeat for 45s"},
		{"late and behind", func(r *view.Rank, _ *view.Node) { r.Now.BeatAge, r.Now.Step = 45, 98 }, Warn, "no heartbeat for 45s, at step 98, others at 100"},
		{"stuck", func(r *view.Rank, _ *view.Node) { r.Now.BeatAge = 200 }, Bad, "no heartbeat for 3m20s"},
		{"not reported", func(r *view.Rank, _ *view.Node) { r.Heard = now.Add(-time.Minute) }, Warn, "not measured for 1m00s"},
		{"old errors", func(r *view.Rank, _ *view.Node) { r.Now.Xids, r.Samples[0].Xids = 2, 2 }, Note, "2 errors of its GPU (Xid)"},
		{"new errors", func(r *view.Rank, _ *view.Node) { r.Now.Xids = 1 }, Warn, "1 error of its GPU (Xid)"},
		{"behind", func(r *view.Rank, _ *view.Node) { r.Now.Step = 90 }, Warn, "10 steps behind"},
		{"looked at before", func(r *view.Rank, _ *view.Node) { r.Now.Step, r.Samples[0].At = 90, now.Add(-10*time.Second) }, Fine, ""},
		{"slow", func(r *view.Rank, _ *view.Node) { r.Now.StepTime = 1.5 }, Warn, "steps take 50% longer"},
		{"idle", func(r *view.Rank, _ *view.Node) { r.Now.GPUUse = 0.3 }, Note, "GPU 30% busy, others 97%"},
		{"works alone", func(r *view.Rank, _ *view.Node) { r.Now.GPUPower = 600 }, Note, "draws 600W, others 500W: maybe they wait for it"},
		{"waits", func(r *view.Rank, _ *view.Node) { r.Now.GPUPower = 300 }, Fine, ""},
		{"nothing known", func(r *view.Rank, _ *view.Node) { r.Now, r.Samples = report.Unmeasured(), nil }, Fine, ""},
	} {
		r, n := &view.Rank{Heard: now, Now: report.Unmeasured()}, &view.Node{}
		r.Now.Step, r.Now.StepTime, r.Now.BeatAge, r.Now.GPUUse, r.Now.GPUPower, r.Now.Xids = 100, 1, 0.5, 0.97, 505, 0
		r.Samples = []report.Sample{{At: now, Usage: r.Now}}
		c.change(r, n)
		if got := rankAlert(r, n, of, now); got.Level != c.level || got.Why != c.why {
			t.Errorf("%s: %v, %q", c.name, got.Level, got.Why)
		}
	}
	if got := rankAlert(&view.Rank{Now: report.Unmeasured()}, nil, normsOf(nil), now); got.Level != Fine {
		t.Errorf("for unknown values: %+v", got)
	}
}

func TestRankAlertFinding(t *testing.T) {
	now := time.Unix(1e6, 0)
	f := straggler.Finding{Slower: 0.12, Cost: 0.09, Since: now.Add(-4 * time.Minute)}
	if c := stragglerAlert(f, now); c.Why != "12% slower for 4m00s, costs the job 9%" || c.Level != Warn {
		t.Error(c)
	}
	f.Whole, f.Cost = true, math.NaN()
	if c := stragglerAlert(f, now); c.Why != "its node is 12% slower for 4m00s" {
		t.Error(c)
	}
}

// TestWorst: the culprit comes first, and the job shows the number of bad ranks.
func TestWorst(t *testing.T) {
	now := time.Unix(1e6, 0)
	j := &view.Job{JobStatus: report.JobStatus{ID: "a", Phase: "running", Nodes: []string{"n0", "n1"}}}
	for rank := range 8 {
		r := &view.Rank{Job: "a", Rank: rank, Node: fmt.Sprint("n", rank/4), Heard: now, Now: report.Unmeasured()}
		r.Now.Step, r.Now.StepTime, r.Now.BeatAge = 10, 1, 60
		if rank == 5 {
			r.Now.Step = 9
		}
		j.Ranks = append(j.Ranks, r)
	}
	nodes := []*view.Node{{NodeStatus: report.NodeStatus{Name: "n0"}}, {NodeStatus: report.NodeStatus{Name: "n1"}}}
	p := NewPicture(&view.State{At: now, Jobs: []*view.Job{j}, Nodes: nodes})
	got := p.Jobs[0]
	if got.Ranks[0].Rank.Rank != 5 || got.Nodes[0].Name != "n1" || p.Nodes[0].Name != "n1" {
		t.Errorf("the worst are rank %d, node %s and %s", got.Ranks[0].Rank.Rank, got.Nodes[0].Name, p.Nodes[0].Name)
	}
	if want := "rank 5 on n1: no heartbeat for 1m00s, at step 9, others at 10 (and 7 others)"; got.Why != want {
		t.Errorf("%q, want %q", got.Why, want)
	}
}

// TestWrong checks the answer that scripts want: whether anything is wrong.
func TestWrong(t *testing.T) {
	job := func(id, phase string, ending report.Ending) *view.Job {
		j := &view.Job{JobStatus: report.JobStatus{ID: id, Phase: phase}}
		if ending != "" {
			j.Result = &report.Result{Ending: ending}
		}
		return j
	}
	hung := job("hung", "running", "")
	hung.Ranks = []*view.Rank{{Job: "hung", Now: report.Unmeasured()}}
	hung.Ranks[0].Now.BeatAge = 1000
	stalled := job("stalled", "running", "")
	stalled.History = []report.Moment{{To: "training"}}
	stalled.Ranks = []*view.Rank{{Job: "stalled", Now: report.Unmeasured()}}
	stalled.Ranks[0].Now.BeatAge = 36
	failed := job("failed", "stopping", "")
	failed.Ranks = []*view.Rank{{Job: "failed", Now: report.Unmeasured(), Exit: &report.Exit{Code: 3}}}
	silent := &view.Node{NodeStatus: report.NodeStatus{Silent: time.Second}}
	for _, c := range []struct {
		name  string
		only  string
		state view.State
		want  bool
	}{
		{"nothing", "", view.State{}, false},
		{"runs", "", view.State{Jobs: []*view.Job{job("a", "running", "")}}, false},
		{"prepares", "", view.State{Jobs: []*view.Job{job("a", "preparing", "")}}, false},
		{"waits", "", view.State{Jobs: []*view.Job{job("a", "running", ""), job("b", "gathering", "")}}, true},
		{"another waits", "a", view.State{Jobs: []*view.Job{job("a", "running", ""), job("b", "gathering", "")}}, false},
		{"backs off", "", view.State{Jobs: []*view.Job{job("a", "backoff", "")}}, true},
		{"stops after its end", "", view.State{Jobs: []*view.Job{job("a", "stopping", "")}}, false},
		{"stops after a failure", "", view.State{Jobs: []*view.Job{failed}}, true},
		{"hangs", "", view.State{Jobs: []*view.Job{hung}}, true},
		{"stands still", "", view.State{Jobs: []*view.Job{stalled}}, true},
		{"is gone", "a", view.State{Jobs: []*view.Job{job("a", "finished", "")}}, true},
		{"has failed before", "", view.State{Jobs: []*view.Job{job("a", "finished", report.EndProgram)}}, false},
		{"has failed", "a", view.State{Jobs: []*view.Job{job("a", "finished", report.EndProgram)}}, true},
		{"has ended well", "a", view.State{Jobs: []*view.Job{job("a", "finished", report.EndSuccess)}}, false},
		{"silent", "", view.State{Nodes: []*view.Node{silent}}, true},
		{"is not there", "x", view.State{}, false},
	} {
		if got := NewPicture(&c.state).Wrong(c.only); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestSaid checks the text on the line of a job, and its level.
func TestSaid(t *testing.T) {
	cancelled := "job cancelled: got SIGINT"
	for _, c := range []struct {
		job        report.JobStatus
		level      Level
		state, why string
	}{
		{report.JobStatus{Phase: "gathering", Waits: "2 nodes"}, Warn, "gathering", "waits: 2 nodes"},
		{report.JobStatus{Phase: "finished", Waits: "done", Result: &report.Result{Ending: report.EndSuccess}}, Fine, "success", "done"},
		{report.JobStatus{Phase: "finished", Waits: "no more", Result: &report.Result{Ending: report.EndBudget}}, Bad, "failed", "no more"},
		{report.JobStatus{Phase: "finished", Waits: cancelled, Result: &report.Result{Ending: report.EndCancelled}}, Note, "cancelled", cancelled},
		{report.JobStatus{Phase: "finished", Waits: "nobody tells"}, Note, "gone", "nobody tells"},
		{report.JobStatus{
			Phase: "stopping", Waits: cancelled + "; 2 ranks to end", History: []report.Moment{{To: "stopping", Reason: cancelled + "; 2 ranks to end"}},
		}, Note, "stopping", cancelled + "; 2 ranks to end"},
		{report.JobStatus{
			Phase: "backoff", Waits: "attempt 1 follows", History: []report.Moment{{Cause: "oom", Reason: "rank 0 died; so"}},
		}, Bad, "backoff", "rank 0 died; attempt 1 follows"},
	} {
		c.job.ID = "a"
		j := NewPicture(&view.State{Jobs: []*view.Job{{JobStatus: c.job}}}).Job("a")
		if j.Level != c.level || j.State() != c.state || j.Why != c.why {
			t.Errorf("%s is %v, %s: %q; want %v, %s: %q", c.job.Phase, j.Level, j.State(), j.Why, c.level, c.state, c.why)
		}
	}
}
