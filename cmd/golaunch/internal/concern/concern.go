// Package concern is the one place that says what is wrong with jobs, nodes and ranks, and how badly. The terminal monitor and the page
// show its judgement.
//
// A [Picture] is a [view.State] with what there is to say about it, the worst first everywhere.
package concern

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/straggler"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Level says how bad something is.
type Level int

// The levels, from the best.
const (
	// Fine is nothing to look at.
	Fine Level = iota
	// Note is something to know.
	Note
	// Warn is something that costs time, or will.
	Warn
	// Bad is something that has failed, or stands still.
	Bad
)

// String is "fine", "note", "warn" or "bad".
func (l Level) String() string { return [...]string{"fine", "note", "warn", "bad"}[l] }

// Concern is what there is to say about a job, a node or a rank. The worst has the highest Level, and within it the highest Weight.
type Concern struct {
	Level  Level
	Weight float64
	// Why is one line of plain words: "no heartbeat for 45s"; empty where it is Fine. It may have names that come from outside.
	Why string
}

// Worse compares concerns: the worst comes first.
func Worse(a, b Concern) int {
	return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(b.Weight, a.Weight))
}

// Kinds of concerns, which stand above a magnitude in a weight.
const (
	byPower = iota
	byUse
	byPace
	bySlowness
	bySteps
	byXid
	byBeat
	byAnswer
	bySilence
	byEnd
)

// concern is one of a kind: among those of one kind the magnitude decides.
func concern(l Level, kind int, magnitude float64, format string, args ...any) Concern {
	return Concern{l, float64(kind)*1e9 + min(magnitude, 1e9-1), fmt.Sprintf(format, args...)}
}

const (
	// stuckAfter is the least time without a heartbeat that is called a standstill. It is longer where steps are: stuckSteps of them.
	stuckAfter, stuckSteps = 3 * time.Minute, 30
	// FreshBeat is the age of a heartbeat below which it is nothing to speak of.
	FreshBeat = 5 * time.Second
	// slowPace is how much longer than the median a step is that is called slow.
	slowPace = 1.2
	// lowUse is the share of the median's GPU use below which one is called low.
	lowUse = 0.5
	// unheard is how long nothing was measured of a rank before that is said.
	unheard = 20 * time.Second
)

// judge is the one place that says what is wrong with a rank, and how badly. Of several concerns it is the worst.
func judge(r *view.Rank, n *view.Node, of Norms, now time.Time) Concern {
	if r.Ended != "" {
		return judgeEnd(r)
	}
	var worst Concern
	for _, c := range []Concern{
		judgeNode(n), judgeBeat(r, of), judgeHeard(r, now), judgeXids(r), judgeSteps(r, of), judgePace(r, of), judgeUse(r, of), judgePower(r, of),
	} {
		if Worse(c, worst) < 0 {
			worst = c
		}
	}
	return worst
}

func judgeEnd(r *view.Rank) Concern {
	if r.Ended == "exited with code 0" {
		return Concern{}
	}
	return concern(Bad, byEnd, 0, "ended: %s", strings.Replace(r.Ended, "exited with code", "exit", 1))
}

// judgeNode is what a rank suffers from its node.
func judgeNode(n *view.Node) Concern {
	switch {
	case n == nil:
		return Concern{}
	case n.Silent > 0:
		return concern(Bad, bySilence, n.Silent.Seconds(), "node silent for %s", units.Span(n.Silent))
	case n.Missing != "":
		return concern(Warn, byAnswer, 0, "not measured: %s", n.Missing)
	}
	return Concern{}
}

// judgeBeat is about a rank that has told its steps and does not go on. The one with the lowest step is what the others wait for.
func judgeBeat(r *view.Rank, of Norms) Concern {
	late, behind := r.Now.BeatAge, max(0, of.step-r.Now.Step)
	if !units.Known(behind) {
		behind = 0
	}
	why := "no heartbeat for " + units.Age(late)
	if behind >= 1 {
		why += fmt.Sprintf(", at step %s, others at %s", units.Whole(r.Now.Step), units.Whole(of.step))
	}
	switch {
	case late >= of.stuck():
		return concern(Bad, byBeat, late+1e4*min(behind, 1e4), "%s", why)
	case late >= of.Late():
		return concern(Warn, byBeat, late+1e4*min(behind, 1e4), "%s", why)
	}
	return Concern{}
}

func judgeHeard(r *view.Rank, now time.Time) Concern {
	if d := now.Sub(r.Heard); !r.Heard.IsZero() && d > unheard {
		return concern(Warn, byAnswer, d.Seconds(), "not measured for %s", units.Span(d))
	}
	return Concern{}
}

// judgeXids is about errors of the GPU; those that came while somebody looked are worse.
func judgeXids(r *view.Rank) Concern {
	if !(r.Now.Xids > 0) {
		return Concern{}
	}
	level := Note
	if len(r.Samples) > 0 && r.Now.Xids > r.Samples[0].Xids {
		level = Warn
	}
	return concern(level, byXid, r.Now.Xids, "%s of its GPU (Xid)", units.Plural(int(r.Now.Xids), "error"))
}

// judgeSteps compares steps as of one time: each rank was looked at at its own.
func judgeSteps(r *view.Rank, of Norms) Concern {
	if !(of.StepTime > 0) || len(r.Samples) == 0 {
		return Concern{}
	}
	apart := of.at.Sub(r.Samples[len(r.Samples)-1].At).Seconds() / of.StepTime
	behind := of.step - apart - r.Now.Step
	if allowed := 2 + 1/of.StepTime; !(behind > allowed) {
		return Concern{}
	}
	why := units.Plural(int(math.Round(behind)), "step") + " behind"
	if late := r.Now.BeatAge; late >= max(FreshBeat.Seconds(), of.Steps(3)) {
		why += ", no heartbeat for " + units.Age(late)
	}
	return concern(Warn, bySteps, behind, "%s", why)
}

func judgePace(r *view.Rank, of Norms) Concern {
	if ratio := r.Now.StepTime / of.StepTime; ratio >= slowPace {
		return concern(Warn, byPace, ratio, "steps take %.0f%% longer", (ratio-1)*100)
	}
	return Concern{}
}

func judgeUse(r *view.Rank, of Norms) Concern {
	if of.use > 0.2 && r.Now.GPUUse < lowUse*of.use {
		return concern(Note, byUse, of.use-r.Now.GPUUse, "GPU %s busy, others %s", units.Percent(r.Now.GPUUse), units.Percent(of.use))
	}
	return Concern{}
}

// judgePower is about a rank that works while others wait: a GPU that waits for others draws less, and reports that it is in use all the same.
// One look proves nothing: after about a minute of looks there is a finding, or none.
func judgePower(r *view.Rank, of Norms) Concern {
	if more := r.Now.GPUPower - of.power; of.ranks >= 8 && more > max(0.1*of.power, 4*of.powerSpread) {
		return concern(Note, byPower, more, "draws %s, others %s: maybe they wait for it", units.Watts(r.Now.GPUPower), units.Watts(of.power))
	}
	return Concern{}
}

// judgeFinding is what was found out about a straggler, and what it costs.
func judgeFinding(f straggler.Finding, now time.Time) Concern {
	who, cost := "", ""
	if f.Whole {
		who = "its node is "
	}
	if f.Cost > 0 {
		cost = fmt.Sprintf(", costs the job %.0f%%", f.Cost*100)
	}
	return concern(Warn, bySlowness, f.Slower+1, "%s%.0f%% slower for %s%s", who, f.Slower*100, units.Span(now.Sub(f.Since)), cost)
}
