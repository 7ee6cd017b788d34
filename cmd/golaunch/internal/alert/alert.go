// Package alert finds problems of jobs, nodes and ranks, and decides how bad they are. The terminal
// monitor and the page show its alerts.
//
// A [Picture] is a [view.State] with its alerts, the worst first everywhere.
package alert

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

// Level says how bad a problem is.
type Level int

// The levels, from the best.
const (
	// Fine needs no attention.
	Fine Level = iota
	// Note is worth knowing.
	Note
	// Warn costs time, or will cost time.
	Warn
	// Bad has failed, or makes no progress.
	Bad
)

// String is "fine", "note", "warn" or "bad".
func (l Level) String() string { return [...]string{"fine", "note", "warn", "bad"}[l] }

// Alert is a problem of a job, a node or a rank. The worst has the highest Level, and within it the
// highest Weight.
type Alert struct {
	Level  Level
	Weight float64
	// Why is one line: "no heartbeat for 45s"; empty if the level is Fine. It may contain names
	// from outside.
	Why string
}

// Worse compares alerts: the worse one comes first.
func Worse(a, b Alert) int {
	return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(b.Weight, a.Weight))
}

// Kinds of alerts, from the least important. A weight compares first the kinds of two alerts, and
// then their magnitudes.
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

// newAlert makes an alert of a kind. Among alerts of one kind the magnitude decides.
func newAlert(l Level, kind int, magnitude float64, format string, args ...any) Alert {
	return Alert{l, float64(kind)*1e9 + min(magnitude, 1e9-1), fmt.Sprintf(format, args...)}
}

const (
	// stuckAfter is how long a rank may write no heartbeat before it counts as standing still. If
	// stuckSteps steps take longer, their time is the limit.
	stuckAfter, stuckSteps = 3 * time.Minute, 30
	// FreshBeat is the age up to which a display may omit the age of a heartbeat.
	FreshBeat = 5 * time.Second
	// slowPace is the time of a slow step, as a multiple of the median.
	slowPace = 1.2
	// lowUse is the share of the median GPU use below which a GPU's use is low.
	lowUse = 0.5
	// unheard is how long a rank sends no sample before an alert says so.
	unheard = 20 * time.Second
)

// rankAlert alone decides which problem a rank has, and how bad it is. Of several alerts it returns
// the worst.
func rankAlert(r *view.Rank, n *view.Node, of Norms, now time.Time) Alert {
	if r.Exit != nil {
		return endAlert(r)
	}
	var worst Alert
	for _, c := range []Alert{
		nodeAlert(n), heartbeatAlert(r, of), silentAlert(r, now), xidAlert(r), stepAlert(r, of), paceAlert(r, of), useAlert(r, of), powerAlert(r, of),
	} {
		if Worse(c, worst) < 0 {
			worst = c
		}
	}
	return worst
}

func endAlert(r *view.Rank) Alert {
	if r.Exit.OK() {
		return Alert{}
	}
	return newAlert(Bad, byEnd, 0, "ended: %s", strings.Replace(r.Exit.String(), "exited with code", "exit", 1))
}

// nodeAlert returns the alert of a node.
func nodeAlert(n *view.Node) Alert {
	switch {
	case n == nil:
		return Alert{}
	case n.Silent > 0:
		return newAlert(Bad, bySilence, n.Silent.Seconds(), "node silent for %s", units.Span(n.Silent))
	case n.Missing != "":
		return newAlert(Warn, byAnswer, 0, "not measured: %s", n.Missing)
	}
	return Alert{}
}

// heartbeatAlert is for a rank that has reported steps and now reports none. The others wait for
// the rank with the lowest step.
func heartbeatAlert(r *view.Rank, of Norms) Alert {
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
		return newAlert(Bad, byBeat, late+1e4*min(behind, 1e4), "%s", why)
	case late >= of.Late():
		return newAlert(Warn, byBeat, late+1e4*min(behind, 1e4), "%s", why)
	}
	return Alert{}
}

func silentAlert(r *view.Rank, now time.Time) Alert {
	if d := now.Sub(r.Heard); !r.Heard.IsZero() && d > unheard {
		return newAlert(Warn, byAnswer, d.Seconds(), "not measured for %s", units.Span(d))
	}
	return Alert{}
}

// xidAlert is for errors that the GPU has reported. An error is worse if it occurred during the
// watch.
func xidAlert(r *view.Rank) Alert {
	if !(r.Now.Xids > 0) {
		return Alert{}
	}
	level := Note
	if len(r.Samples) > 0 && r.Now.Xids > r.Samples[0].Xids {
		level = Warn
	}
	return newAlert(level, byXid, r.Now.Xids, "%s of its GPU (Xid)", units.Plural(int(r.Now.Xids), "error"))
}

// stepAlert compares the ranks' steps at one time, since their samples have different times.
func stepAlert(r *view.Rank, of Norms) Alert {
	if !(of.StepTime > 0) || len(r.Samples) == 0 {
		return Alert{}
	}
	apart := of.at.Sub(r.Samples[len(r.Samples)-1].At).Seconds() / of.StepTime
	behind := of.step - apart - r.Now.Step
	if allowed := 2 + 1/of.StepTime; !(behind > allowed) {
		return Alert{}
	}
	why := units.Plural(int(math.Round(behind)), "step") + " behind"
	if late := r.Now.BeatAge; late >= max(FreshBeat.Seconds(), of.Steps(3)) {
		why += ", no heartbeat for " + units.Age(late)
	}
	return newAlert(Warn, bySteps, behind, "%s", why)
}

func paceAlert(r *view.Rank, of Norms) Alert {
	if ratio := r.Now.StepTime / of.StepTime; ratio >= slowPace {
		return newAlert(Warn, byPace, ratio, "steps take %.0f%% longer", (ratio-1)*100)
	}
	return Alert{}
}

func useAlert(r *view.Rank, of Norms) Alert {
	if of.use > 0.2 && r.Now.GPUUse < lowUse*of.use {
		return newAlert(Note, byUse, of.use-r.Now.GPUUse, "GPU %s busy, others %s", units.Percent(r.Now.GPUUse), units.Percent(of.use))
	}
	return Alert{}
}

// powerAlert is for a rank that works while others wait: a GPU that waits draws less power,
// although it reports full use. One sample proves nothing; after about a minute of samples, the
// straggler detection decides.
func powerAlert(r *view.Rank, of Norms) Alert {
	if more := r.Now.GPUPower - of.power; of.ranks >= 8 && more > max(0.1*of.power, 4*of.powerSpread) {
		return newAlert(Note, byPower, more, "draws %s, others %s: maybe they wait for it", units.Watts(r.Now.GPUPower), units.Watts(of.power))
	}
	return Alert{}
}

// stragglerAlert reports a straggler with its cost.
func stragglerAlert(f straggler.Finding, now time.Time) Alert {
	who, cost := "", ""
	if f.Whole {
		who = "its node is "
	}
	if f.Cost > 0 {
		cost = fmt.Sprintf(", costs the job %.0f%%", f.Cost*100)
	}
	return newAlert(Warn, bySlowness, f.Slower+1, "%s%.0f%% slower for %s%s", who, f.Slower*100, units.Span(now.Sub(f.Since)), cost)
}
