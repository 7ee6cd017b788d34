package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher/report"
)

// longest is the greatest width of names in a table.
const longest = 24

// nameWidth returns the width of the longest of several names.
func nameWidth[T any](all []T, least int, name func(T) string) int {
	w := least
	for _, v := range all {
		if w = max(w, width(clean(name(v)))); w >= longest {
			return longest
		}
	}
	return w
}

func (p *Picture) jobList() list {
	return list{
		"jobs", p.jobColumns(), len(p.Jobs), func(i int) place { return place{job: p.Jobs[i].ID, rank: noRank} },
		func(i int) row { return p.jobRow(p.Jobs[i]) },
		func(i int) string { j := p.Jobs[i]; return j.ID + " " + j.State() + " " + j.Why + " " + j.Title }, nil,
	}
}

func (p *Picture) nodeList(at place) list {
	nodes := p.nodesOf(at)
	return list{
		"nodes", nodeColumns(nodes), len(nodes), func(i int) place { return place{job: at.job, node: nodes[i].Name, rank: noRank} },
		func(i int) row { return nodeRow(nodes[i]) }, func(i int) string { return nodes[i].Name + " " + nodes[i].Why }, nil,
	}
}

func (p *Picture) rankList(at place) list {
	ranks := p.ranks(at)
	return list{
		"ranks", rankColumns(at, ranks), len(ranks),
		func(i int) place { return place{job: ranks[i].Job, node: ranks[i].Node, rank: ranks[i].Rank.Rank} },
		func(i int) row { return rankRow(at, ranks[i]) },
		func(i int) string {
			return nameOf(ranks[i], at) + " " + ranks[i].Node + " " + ranks[i].Why + " " + ranks[i].Does
		},
		ranks,
	}
}

func (p *Picture) jobColumns() []column {
	return []column{
		{"JOB", nameWidth(p.Jobs, 8, func(j *Job) string { return j.ID }), false, 9},
		{"STATE", 9, false, 9},
		{"STEP", 13, true, 7},
		{"DONE", 4, true, 6},
		{"TIME/STEP", 9, true, 5},
		{"LEFT", 6, true, 6},
		{"RANKS", 5, true, 3},
		{"GPUS", 5, true, 2},
		{"GOODPUT", 7, true, 1},
		{"AGE", 6, true, 2},
		{"WHY, OR WHAT RUNS", 0, false, 8},
	}
}

func (p *Picture) jobRow(j *Job) row {
	end := p.State.At
	if j.Over() && !j.Finished.IsZero() {
		end = j.Finished
	}
	steps, done := units.Unknown, units.Unknown
	if units.Known(j.Progress.Step) {
		steps = units.Whole(j.Progress.Step)
		if j.Progress.Total > 0 {
			steps += "/" + units.Whole(j.Progress.Total)
			done = units.Percent(j.Progress.Step / j.Progress.Total)
		}
	}
	return row{j.Level, j.Over(), []string{
		j.ID, j.State(), steps, done, units.StepSeconds(j.Progress.StepTime), units.Age(j.Left(p.State.At)), fmt.Sprint(j.JobStatus.Ranks), fmt.Sprint(j.GPUs),
		goodput(j.Goodput), units.Span(end.Sub(j.Submitted)), cmp.Or(j.Why, j.Title),
	}}
}

func goodput(g *report.Goodput) string {
	if g == nil {
		return units.Unknown
	}
	return units.Percent(g.Goodput)
}

func nodeColumns(nodes []*Node) []column {
	return []column{
		{"NODE", nameWidth(nodes, 8, func(n *Node) string { return n.Name }), false, 9},
		{"RANKS", 5, true, 4},
		{"STEP", 7, true, 7},
		{"TIME/STEP", 9, true, 5},
		{"BEAT", 6, true, 6},
		{"GPU", 4, true, 5},
		{"POWER", 6, true, 3},
		{"CPUS", 5, true, 3},
		{"MEMORY", 6, true, 2},
		{"IN/s", 6, true, 1},
		{"OUT/s", 6, true, 1},
		{"WHY", 0, false, 8},
	}
}

func nodeRow(n *Node) row {
	cpus, memory, received, sent := units.Unknown, units.Unknown, units.Unknown, units.Unknown
	if n.Node != nil {
		cpus, memory, received, sent = units.Tenths(n.Now.CPUs), units.Size(n.Now.Memory), units.Size(n.Now.Received), units.Size(n.Now.Sent)
	}
	why := n.Why
	if n.Node == nil {
		why = "gone"
	}
	of := func(v func(*report.Usage) float64) float64 {
		return mean(n.Ranks, func(r *Rank) float64 { return v(&r.Now) })
	}
	oldest, lowest := -1.0, -1.0
	for _, r := range n.Ranks {
		oldest = max(oldest, r.Now.BeatAge)
		if units.Known(r.Now.Step) && (lowest < 0 || r.Now.Step < lowest) {
			lowest = r.Now.Step
		}
	}
	return row{n.Level, n.Node == nil, []string{
		n.Name, fmt.Sprint(len(n.Ranks)), positive(lowest, units.Whole), units.StepSeconds(of(stepTimeOf)), positive(oldest, units.Age), units.Percent(of(useOf)),
		units.Watts(of(powerOf)), cpus, memory, received, sent, why,
	}}
}

// positive formats a number above 0.
func positive(v float64, show func(float64) string) string {
	if !(v >= 0) {
		return units.Unknown
	}
	return show(v)
}

func rankColumns(at place, ranks []*Rank) []column {
	columns := []column{
		{"RANK", 5, true, 9},
		{"NODE", nameWidth(ranks, 6, func(r *Rank) string { return r.Node }), false, 4},
		{"STEP", 7, true, 7},
		{"TIME/STEP", 9, true, 5},
		{"BEAT", 6, true, 6},
		{"GPU", 4, true, 5},
		{"POWER", 6, true, 4},
		{"GPU MEM", 7, true, 3},
		{"CPUS", 5, true, 4},
		{"MEMORY", 6, true, 2},
		{"IO/s", 6, true, 1},
		{"OUTPUT", 6, true, 2},
		{"PID", 8, true, 0},
		{"WHY, OR WHAT IT DOES", 0, false, 8},
	}
	if at.job == "" {
		columns[0] = column{"RANK OF JOB", nameWidth(ranks, 11, func(r *Rank) string { return nameOf(r, at) }), false, 9}
	}
	return columns
}

// nameOf is a rank's name at a place.
func nameOf(r *Rank, at place) string {
	if at.job == "" {
		return fmt.Sprintf("%d %s", r.Rank.Rank, r.Job)
	}
	return fmt.Sprint(r.Rank.Rank)
}

func rankRow(at place, r *Rank) row {
	u := &r.Now
	return row{r.Level, r.Exit != nil && r.Level == Fine, []string{
		nameOf(r, at), r.Node, units.Whole(u.Step), units.StepSeconds(u.StepTime), units.Age(u.BeatAge), units.Percent(u.GPUUse), units.Watts(u.GPUPower), units.Size(u.GPUMemory),
		units.Tenths(u.CPUs), units.Size(u.Memory), units.Size(u.IO), silence(u), pid(r.PID), cmp.Or(r.Why, strings.Replace(r.Ended(), "exited with code", "exit", 1), r.Does),
	}}
}

func pid(n int) string {
	if n == 0 {
		return units.Unknown
	}
	return fmt.Sprint(n)
}

// attempt is one start of a job's ranks, as its history records it.
type attempt struct {
	number       int
	began, ended time.Time
	level        Level
	why          string
}

// attemptsOf are the attempts in the history of a job, the newest first.
func attemptsOf(j *Job) (all []attempt) {
	for _, m := range j.History {
		if m.Attempt < 0 {
			continue
		}
		if n := len(all); n == 0 || all[n-1].number != m.Attempt {
			if n > 0 {
				all[n-1].ended = m.At
			}
			all = append(all, attempt{number: m.Attempt, began: m.At})
		}
		a := &all[len(all)-1]
		switch {
		case m.Cause != "" && a.level == Fine: // the first failure is the cause of the others
			a.level, a.why = Bad, m.Cause+": "+m.Reason
		case a.level == Fine:
			a.why = m.Reason
		}
	}
	if n := len(all); n > 0 {
		last := &all[n-1]
		last.ended = j.Finished
		if j.Failed() && last.level == Fine {
			last.level, last.why = Bad, j.Result.Reason
		}
	}
	slices.Reverse(all)
	return all
}

func (p *Picture) attemptList(at place) list {
	var all []attempt
	if j := p.Job(at.job); j != nil {
		all = attemptsOf(j)
	}
	return list{
		"attempts",
		[]column{{"ATTEMPT", 7, true, 9}, {"BEGAN", 10, true, 7}, {"LASTED", 7, true, 7}, {"WHY, OR WHAT WAS LAST", 0, false, 8}},
		len(all),
		func(i int) place { return place{job: at.job, rank: noRank, attempts: true, attempt: all[i].number + 1} },
		func(i int) row { return all[i].row(p.State.At) },
		func(i int) string { return fmt.Sprint(all[i].number, " ", all[i].why) },
		nil,
	}
}

func (a attempt) row(now time.Time) row {
	began := units.Span(now.Sub(a.began)) + " ago"
	if !a.ended.IsZero() {
		now = a.ended
	}
	return row{a.level, false, []string{fmt.Sprint(a.number), began, units.Span(now.Sub(a.began)), a.why}}
}

// silence is the age of a rank's last line; unknown without output.
func silence(u *report.Usage) string {
	if u.LogBytes == 0 {
		return units.Unknown
	}
	return units.Age(u.SilenceAge)
}
