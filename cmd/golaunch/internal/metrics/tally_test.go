package metrics

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// world is a job whose ranks write, restart, move and go away.
type world struct {
	job   *view.Job
	now   time.Time
	lines map[int]float64
	// wrote is the number of lines that were written since the tally began.
	wrote float64
}

func (w *world) look(c *tally) (lines float64) {
	all := gather([]source{{State: &view.State{At: w.now, Jobs: []*view.Job{w.job}}, name: "a", told: w.now, up: true}})
	c.take(all)
	return c.jobs["x"].lines.value()
}

func (w *world) rank(rank, attempt int) *view.Rank {
	u := unknown
	u.Lines = w.lines[rank]
	return &view.Rank{
		Job: "x", Node: "n1", Rank: rank, Attempt: attempt, PID: attempt*100 + rank + 1, Now: u,
		Samples: []report.Sample{{At: w.now, Attempt: attempt, Usage: u}},
	}
}

var unknown = report.Usage{
	Step: math.NaN(), Total: math.NaN(), StepTime: math.NaN(), BeatAge: math.NaN(), SilenceAge: math.NaN(), Lines: math.NaN(), LogBytes: math.NaN(),
	GPUUse: math.NaN(), Xids: math.NaN(),
}

// TestLinesAreCountedOnce: the counter counts all lines since it began to watch, if it has seen
// each attempt's end. It never falls.
func TestLinesAreCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := &world{now: time.Unix(1e9, 0), lines: map[int]float64{}}
		world.job = &view.Job{JobStatus: report.JobStatus{ID: "x", Phase: "running", Submitted: world.now.Add(-time.Hour), Nodes: []string{"n1"}}}
		attempts := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 5).Draw(t, "attempts")
		for rank, attempt := range attempts {
			world.lines[rank] = float64(rapid.IntRange(0, 1000).Draw(t, "before"))
			world.job.Attempt = max(world.job.Attempt, attempt)
			world.job.Ranks = append(world.job.Ranks, world.rank(rank, attempt))
		}
		var c tally
		if first := world.look(&c); first != 0 {
			t.Fatalf("it begins at %v", first)
		}
		before := 0.0
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			world.now = world.now.Add(time.Second)
			rank := rapid.IntRange(0, len(attempts)-1).Draw(t, "rank")
			more := float64(rapid.IntRange(0, 50).Draw(t, "lines"))
			if rapid.Bool().Draw(t, "restarts") {
				attempts[rank]++
				world.lines[rank] = 0
			}
			world.lines[rank] += more
			world.wrote += more
			ranks := append([]*view.Rank(nil), world.job.Ranks...)
			ranks[rank] = world.rank(rank, attempts[rank])
			world.job = &view.Job{JobStatus: world.job.JobStatus, Ranks: ranks}
			got := world.look(&c)
			if got != world.wrote || got < before {
				t.Fatalf("%v lines, after %v; %v were written", got, before, world.wrote)
			}
			before = got
		}
	})
}

// TestRatesAfterRestarts checks the rates that Prometheus would compute from the counters when a
// job restarts, ends, comes again under the same name, or is younger than the exporter.
func TestRatesAfterRestarts(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := &world{now: now, lines: map[int]float64{0: 500, 1: 700}}
	w.job = &view.Job{JobStatus: report.JobStatus{ID: "x", Phase: "running", Submitted: now.Add(-time.Hour), Nodes: []string{"n1"}}}
	w.job.Ranks = []*view.Rank{w.rank(0, 0), w.rank(1, 0)}
	var c tally
	want := func(what string, lines float64) {
		t.Helper()
		if got := w.look(&c); got != lines && !(math.IsNaN(got) && math.IsNaN(lines)) {
			t.Errorf("%s: %v lines, not %v", what, got, lines)
		}
	}
	want("what is older is not counted", 0)
	w.lines[0] = 510
	w.job.Ranks = []*view.Rank{w.rank(0, 0), w.rank(1, 0)}
	want("what is newer is", 10)
	w.lines[0] = 3
	w.job.Attempt = 1
	w.job.Ranks = []*view.Rank{w.rank(0, 1), w.rank(1, 0)}
	want("one rank starts again", 13)
	w.lines[7] = 40
	w.job.Ranks = append(w.job.Ranks, w.rank(7, 1))
	want("a rank that began since then is counted whole", 53)
	w.lines[8] = 1000
	w.job.Ranks = append(w.job.Ranks, w.rank(8, 0))
	want("one that is only found late is not", 53)
	w.job.Nodes = nil
	want("its nodes are lost", 53)
	w.job.Nodes, w.job.Submitted = []string{"n1"}, now.Add(time.Minute)
	w.job.Ranks = []*view.Rank{w.rank(0, 0)}
	want("another job of that name, which is younger than the exporter", 3)

	c.take(&seen{blind: true})
	if c.jobs["x"] == nil {
		t.Error("it is forgotten because a source does not answer")
	}
	c.take(&seen{})
	if c.jobs["x"] != nil {
		t.Error("a job that is gone is kept")
	}
}

// TestSteps: repeated steps count again, and a step back does not count.
func TestSteps(t *testing.T) {
	var a advance
	for _, c := range []struct{ now, want float64 }{
		{math.NaN(), math.NaN()}, {480, 0}, {490, 10}, {math.NaN(), 10}, {400, 10}, {405, 15}, {405, 15}, {600, 210},
	} {
		a.add(c.now)
		if got := a.value(); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("at step %v it has %v, not %v", c.now, got, c.want)
		}
	}
}

// TestLedgerCounters: a later correction of a job's ledger makes no counter fall.
func TestLedgerCounters(t *testing.T) {
	g := &report.Goodput{Unit: "GPU", Training: 10, Starting: 2, Costs: []report.Cost{{Cause: "oom", Node: "a", Interruptions: 2, Hours: 1}}}
	s := &view.State{At: time.Unix(1e9, 0), Source: "a", Version: "v1", Jobs: []*view.Job{{JobStatus: report.JobStatus{ID: "x", Phase: "running", Goodput: g}}}}
	c := New(Jobs, &pinned{s})
	has(t, text(t, c), `golaunch_goodput_seconds_total{job="x",state="training"} 36000`, `golaunch_goodput_seconds_total{job="x",state="starting"} 7200`,
		`golaunch_attempts_total{cause="oom",job="x"} 2`, `golaunch_attempts_total{cause="start",job="x"} 1`)
	*g = report.Goodput{Unit: "GPU", Training: 7, Lost: 3, Starting: 1.5, Importing: 0.5, Costs: []report.Cost{{Cause: "oom", Node: "b", Interruptions: 1, Hours: 0.5}}}
	has(t, text(t, c), `golaunch_goodput_seconds_total{job="x",state="training"} 36000`, `golaunch_goodput_seconds_total{job="x",state="starting"} 7200`,
		`golaunch_goodput_lost_seconds_total{job="x"} 10800`, `golaunch_goodput_importing_seconds_total{job="x"} 1800`,
		`golaunch_attempts_total{cause="oom",job="x"} 2`, `golaunch_interruption_seconds_total{cause="oom",job="x"} 3600`)
}

// TestChargeCounters: a clock that was set back makes no counter fall, but a new log does.
func TestChargeCounters(t *testing.T) {
	s := &view.State{At: time.Unix(1e9, 0), Source: "a", Version: "v1", Counted: time.Unix(1e8, 0), Charges: []report.Charge{
		{User: "alice", Kind: "a100-8", Price: 32.5, NodeHours: 2, GPUHours: 16}, {Kind: "a100-8", Price: 32.5, Idle: true, NodeHours: 1, GPUHours: 8},
	}}
	c := New(Jobs, &pinned{s})
	shows := func(charged, idle string) {
		t.Helper()
		has(t, text(t, c), `golaunch_charged_node_seconds_total{kind="a100-8",user="alice"} `+charged, `golaunch_idle_gpu_seconds_total{kind="a100-8"} `+idle,
			`golaunch_kind_price{kind="a100-8"} 32.5`)
	}
	shows("7200", "28800")
	s.Charges[0].NodeHours, s.Charges[1].GPUHours = 1, 9
	shows("7200", "32400")
	s.Counted = s.At
	shows("3600", "32400")
}

// TestSilentRanks: old measurements are not shown as present ones, but the time since the last one
// is.
func TestSilentRanks(t *testing.T) {
	w := &world{now: time.Unix(1e9, 0), lines: map[int]float64{0: 5}}
	r := w.rank(0, 0)
	r.Now.BeatAge, r.Now.GPUUse, r.Now.SilenceAge = 2, 0.9, 4
	lost := w.rank(1, 0)
	lost.Node, lost.Now.BeatAge = "n2", 9000
	w.job = &view.Job{JobStatus: report.JobStatus{ID: "x", Phase: "running", Nodes: []string{"n1"}, Ranks: 2}, Ranks: []*view.Rank{r, lost}}
	s := &view.State{At: w.now, Source: "a", Version: "v1", Jobs: []*view.Job{w.job}}
	c := New(Jobs, &pinned{s})
	has(t, text(t, c), `golaunch_heartbeat_age_seconds{job="x"} 2`, `golaunch_output_age_seconds{job="x"} 4`,
		`golaunch_gpu_utilization_mean_ratio{job="x"} 0.9`, `golaunch_ranks{job="x",state="running"} 1`, `golaunch_ranks{job="x",state="silent"} 1`)
	s.At = s.At.Add(time.Minute)
	got := text(t, c)
	has(t, got, `golaunch_heartbeat_age_seconds{job="x"} 62`, `golaunch_output_age_seconds{job="x"} 64`, `golaunch_ranks{job="x",state="running"} 0`,
		`golaunch_ranks{job="x",state="silent"} 2`)
	hasNot(t, got, "golaunch_gpu_utilization", "golaunch_step_seconds", "golaunch_gpu_power_watts")
	c.Once = true
	hasNot(t, text(t, c), "golaunch_log_lines_total", "golaunch_steps_total", "golaunch_gpu_xids_total")
}

// TestSharedGPU counts the GPU of two ranks once.
func TestSharedGPU(t *testing.T) {
	a, b, c, none := &view.Rank{GPU: "GPU-a"}, &view.Rank{GPU: "GPU-a"}, &view.Rank{GPU: "GPU-c"}, &view.Rank{}
	if got := eachGPU([]*view.Rank{a, b, c, none, none}); !slices.Equal(got, []*view.Rank{a, c, none, none}) {
		t.Errorf("got %v", got)
	}
}
