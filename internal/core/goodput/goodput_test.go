package goodput

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/launcher/report"
)

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }

// told is a change with its time in seconds.
type told struct {
	at     int
	change Change
}

// stepped reports a step that was reached some seconds before.
func stepped(l *Ledger, second, later int, step int64) {
	l.Take(at(second+later), []Change{{Step: step, Ago: time.Duration(later) * time.Second}})
}

func ledgerOf(all []told) *Ledger {
	var l Ledger
	for _, c := range all {
		l.Take(at(c.at), []Change{c.change})
	}
	return &l
}

func TestReport(t *testing.T) {
	failed := func(unit, ranks int, cause, node string) Change {
		return Change{Unit: unit, Ranks: ranks, To: Backoff, Cause: cause, Node: node}
	}
	to := func(unit, ranks int, use Use) Change { return Change{Unit: unit, Ranks: ranks, To: use} }
	once := []told{{0, to(0, 4, Starting)}, {360, to(0, 4, Training)}, {3600, to(0, 4, Stopping)}, {3690, failed(0, 4, "gpu-lost", "n1")}}
	gone := append(append([]told{}, once...), told{3780, to(0, 4, Waiting)}, told{4500, to(0, 2, Starting)}, told{5400, to(0, 2, Training)})
	for _, c := range []struct {
		name string
		told []told
		now  int
		want report.Goodput
		text string
	}{
		{
			"it trains", once[:2], 3600,
			report.Goodput{Goodput: 0.9, Hours: 4, Training: 3.6, Starting: 0.4},
			"90.0 % of 4.0 GPU-hours",
		},
		{
			"it stops, the cause is not known yet", once[:3], 3690,
			report.Goodput{Goodput: 3.6 / 4.1, Hours: 4.1, Training: 3.6, Starting: 0.4, Stopping: 0.1},
			"87.8 % of 4.1 GPU-hours",
		},
		{
			"it backs off", once, 3780,
			report.Goodput{
				Goodput: 3.6 / 4.2, Hours: 4.2, Training: 3.6, Starting: 0.4, Stopping: 0.1, Backoff: 0.1, Interruptions: 1,
				Costs: []report.Cost{{Cause: "gpu-lost", Node: "n1", Interruptions: 1, Hours: 0.2}},
			},
			"85.7 % of 4.2 GPU-hours; 1 interruption cost 0.200: 0.200 gpu-lost (n1)",
		},
		{
			"it goes on smaller", gone, 7200,
			report.Goodput{
				Goodput: 4.6 / 6.5, Hours: 6.5, Training: 4.6, Starting: 0.9, Stopping: 0.1, Backoff: 0.1, Waiting: 0.8, Interruptions: 1,
				Costs: []report.Cost{{Cause: "gpu-lost", Node: "n1", Interruptions: 1, Hours: 1.5}},
			},
			"70.8 % of 6.5 GPU-hours; 1 interruption cost 1.5: 1.5 gpu-lost (n1)",
		},
		{
			"it fails while it starts again", append(append([]told{}, gone[:6]...),
				told{5400, to(0, 2, Stopping)}, told{5400, failed(0, 2, "store-lost", "")}, told{5400, to(0, 2, Over)}), 9999,
			report.Goodput{
				Goodput: 3.6 / 5.5, Hours: 5.5, Training: 3.6, Starting: 0.9, Stopping: 0.1, Backoff: 0.1, Waiting: 0.8, Interruptions: 2,
				Costs: []report.Cost{
					{Cause: "gpu-lost", Node: "n1", Interruptions: 1, Hours: 1.5}, {Cause: "store-lost", Interruptions: 1},
				},
			},
			"65.5 % of 5.5 GPU-hours; 2 interruptions cost 1.5: 1.5 gpu-lost (n1), 0.000 store-lost",
		},
		{
			"units that fail together are one interruption",
			[]told{
				{0, to(0, 1, Training)},
				{0, to(1, 1, Training)},
				{0, to(2, 2, Training)},
				{3600, to(0, 1, Stopping)},
				{3600, to(1, 1, Stopping)},
				{3600, failed(0, 1, "node-lost", "n2")},
				{3600, failed(1, 1, "node-lost", "n2")},
				{5400, to(0, 1, Training)},
				{7200, to(1, 1, Training)},
			},
			7200,
			report.Goodput{
				Goodput: 6.5 / 8, Hours: 8, Training: 6.5, Backoff: 1.5, Interruptions: 1,
				Costs: []report.Cost{{Cause: "node-lost", Node: "n2", Interruptions: 1, Hours: 1.5}},
			},
			"81.2 % of 8.0 GPU-hours; 1 interruption cost 1.5: 1.5 node-lost (n2)",
		},
		{
			"the clock is set back",
			[]told{{0, to(0, 1, Training)}, {3600, to(0, 1, Stopping)}, {1800, to(0, 1, Over)}},
			0,
			report.Goodput{Goodput: 1, Hours: 1, Training: 1},
			"100.0 % of 1.0 GPU-hours",
		},
	} {
		c.want.Unit = "GPU"
		got := ledgerOf(c.told).Report(at(c.now), "GPU")
		if got == nil || !alike(*got, c.want) || got.String() != c.text {
			t.Errorf("%s:\ngot  %+v\n     %v\nwant %+v\n     %s", c.name, got, got, c.want, c.text)
		}
	}
	if r := new(Ledger).Report(at(0), "GPU"); r != nil || r.Notable() {
		t.Errorf("of nothing: %+v", r)
	}
}

// alike compares sums except for their last digits, which depend on the order of addition.
func alike(a, b report.Goodput) bool {
	return fmt.Sprintf("%.9f", flat(a)) == fmt.Sprintf("%.9f", flat(b))
}

func flat(r report.Goodput) []any {
	all := []any{r.Unit, r.Goodput, r.Hours, r.Training, r.Lost, r.Starting, r.Stopping, r.Backoff, r.Waiting, r.Interruptions}
	for _, c := range r.Costs {
		all = append(all, c.Cause, c.Node, c.Interruptions, c.Hours, c.Lost)
	}
	return all
}

// TestSteps checks the ledger of a job that makes a step a minute and reports every other step. It
// fails after 100 minutes, and continues from the checkpoint of step 90.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, minute int
		lost          float64
	}{
		{"from a checkpoint", 90, 111, 21},
		{"between two that are known", 95, 111, 16},
		{"from the beginning", 1, 111, 111},
		{"after all", 101, 111, 0},
	} {
		var l Ledger
		l.Take(at(0), []Change{{Unit: 0, Ranks: 60, To: Training}})
		for step := 2; step <= 100; step += 2 {
			stepped(&l, 60*step, 0, int64(step))
			stepped(&l, 60*step, 0, int64(step))
		}
		l.Take(at(6000), []Change{{Unit: 0, Ranks: 60, To: Stopping}, {Ranks: 60, To: Backoff, Cause: "segfault", Node: "n1"}})
		l.Take(at(6060), []Change{{Unit: 0, Ranks: 60, To: Training}})
		if r := l.Report(at(6060), "GPU"); r.Lost != 0 {
			t.Errorf("%s: lost %v before anybody knows", c.name, r.Lost)
		}
		stepped(&l, 60*(c.minute+1), 20, int64(c.first))
		stepped(&l, 60*(c.minute+2), 0, int64(c.first)+1)
		r := l.Report(at(60*(c.minute+2)), "GPU")
		if r.Lost != c.lost || r.Training != float64(c.minute+1)-c.lost || len(r.Costs) != 1 || r.Costs[0].Lost != c.lost || r.Backoff != 1 {
			t.Errorf("%s: %+v, want %v lost", c.name, r, c.lost)
		}
	}
}

// TestBounds checks that neither causes nor steps make the ledger grow, and that the most expensive
// causes keep their names.
func TestBounds(t *testing.T) {
	var l Ledger
	now := 0
	for i := range 1000 {
		down := 1
		if i%100 == 7 {
			down = 1000 + i
		}
		l.Take(at(now), []Change{{Unit: 0, Ranks: 1, To: Training}})
		stepped(&l, now, 0, int64(i+1))
		l.Take(at(now+10), []Change{{Unit: 0, Ranks: 1, To: Stopping}, {Ranks: 1, To: Backoff, Cause: "segfault", Node: fmt.Sprint("n", i)}})
		now += 10 + down
	}
	r := l.Report(at(now), "rank")
	if len(l.steps) > maxSteps || len(r.Costs) != maxAccounts+1 || r.Interruptions != 1000 || r.Costs[0].Node != "n907" {
		t.Errorf("%d steps, %d costs, %d interruptions; %v", len(l.steps), len(r.Costs), r.Interruptions, r)
	}
	sum := 0.0
	for i, c := range r.Costs {
		sum += c.Hours
		if i < 10 && c.Hours < 1000./3600 {
			t.Errorf("cost %d is %v", i, c)
		}
	}
	if last := r.Costs[maxAccounts]; last.Cause != report.OtherCosts || math.Abs(sum-r.Backoff) > 1e-9 {
		t.Errorf("the last is %v, and all are %v of %v hours", last, sum, r.Backoff)
	}
	if text := r.String(); !strings.HasSuffix(text, "and 29 more") {
		t.Error(text)
	}
}

// TestTheParts checks, for any changes in any order, that the parts of a report add up, that the
// number of reports does not matter, and that the same changes give the same report.
func TestTheParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []told
		now, ranks, whole := 0, map[int]int{}, 0
		var asked Ledger
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			pause := rapid.IntRange(0, 1000).Draw(t, "pause")
			for _, n := range ranks {
				whole += n * pause
			}
			now += pause
			c := Change{
				Unit: rapid.IntRange(0, 3).Draw(t, "unit"), Ranks: rapid.IntRange(1, 9).Draw(t, "ranks"), To: Use(rapid.IntRange(0, int(uses)-1).Draw(t, "to")),
			}
			c.Imported = time.Duration(rapid.IntRange(-1, 2000).Draw(t, "imported")) * time.Second
			if c.To == Backoff {
				c.Cause, c.Node = "cause", fmt.Sprint("n", rapid.IntRange(0, 99).Draw(t, "node"))
			}
			if c.Step = int64(rapid.IntRange(-5, 9).Draw(t, "step")); c.Step > 0 {
				c.Ago = time.Duration(rapid.IntRange(0, 2000).Draw(t, "ago")) * time.Second
			} else if c.Saved = rapid.IntRange(0, 4).Draw(t, "saved") == 0; c.Saved {
				c.Ago = time.Duration(rapid.IntRange(0, 2000).Draw(t, "ago")) * time.Second
			} else if ranks[c.Unit] = c.Ranks; c.To == Over {
				delete(ranks, c.Unit)
			}
			all = append(all, told{now, c})
			asked.Take(at(now), []Change{c})
			asked.Report(at(now), "GPU")
		}
		r := asked.Report(at(now), "GPU")
		if again := ledgerOf(all).Report(at(now), "GPU"); !reflect.DeepEqual(r, again) {
			t.Fatalf("got %+v, and %+v", r, again)
		}
		if r == nil {
			if whole > 0 {
				t.Fatalf("no report of %d s", whole)
			}
			return
		}
		idle, costs, lost := r.Starting+r.Importing+r.Stopping+r.Backoff+r.Waiting, 0.0, 0.0
		for _, c := range r.Costs {
			costs, lost = costs+c.Hours, lost+c.Lost
		}
		if math.Abs(r.Hours*3600-float64(whole)) > 1e-6 || math.Abs(r.Training+r.Lost+idle-r.Hours) > 1e-9 ||
			costs > idle+1e-9 || math.Abs(lost-r.Lost) > 1e-9 || r.Training < 0 || r.Lost < 0 {
			t.Fatalf("%d s are %+v", whole, r)
		}
	})
}

// TestSaves checks the ledger of a job of 60 ranks that makes a step a minute and saves every 20
// minutes. A save takes 2 minutes. The job fails after 50 minutes.
func TestSaves(t *testing.T) {
	for _, c := range []struct {
		name string
		// first is the first step that the job reports after the restart.
		first int64
		lost  float64
	}{
		{"from the checkpoint", 41, 10},
		{"later, so that the step tells nothing", 45, 10},
		{"from an earlier one", 21, 30},
	} {
		var l Ledger
		l.Take(at(0), []Change{{Ranks: 60, To: Training}})
		for minute := 1; minute <= 50; minute++ {
			stepped(&l, 60*minute, 0, int64(minute))
			if minute == 22 || minute == 42 {
				l.Take(at(60*minute), []Change{{Saved: true, Ago: 2 * time.Minute}})
			}
		}
		if risk := l.AtRisk(at(3000)); risk != 10*time.Minute {
			t.Errorf("%s: %v at risk", c.name, risk)
		}
		l.Take(at(3000), []Change{{Ranks: 60, To: Stopping}, {Ranks: 60, To: Backoff, Cause: "segfault", Node: "n1"}})
		if r := l.Report(at(3000), "GPU"); r.Lost != 10 || r.Costs[0].Lost != 10 || l.AtRisk(at(3000)) != 0 {
			t.Errorf("%s: lost %v, %v at risk", c.name, r.Lost, l.AtRisk(at(3000)))
		}
		l.Take(at(3060), []Change{{Ranks: 60, To: Training}})
		stepped(&l, 3120, 0, c.first)
		if r := l.Report(at(3120), "GPU"); r.Lost < c.lost-1 || r.Lost > c.lost+1 {
			t.Errorf("%s: lost %v, want %v", c.name, r.Lost, c.lost)
		}
	}
}
