package alert

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// Picture is a State with its alerts, the worst first everywhere.
type Picture struct {
	State *view.State
	Jobs  []*Job
	Nodes []*Node
	jobs  map[string]*Job
	nodes map[string]*Node
}

// Job finds a job by its ID; nil if there is none.
func (p *Picture) Job(id string) *Job { return p.jobs[id] }

// Node finds a node by its name, with the ranks of all jobs; nil if there is none.
func (p *Picture) Node(name string) *Node { return p.nodes[name] }

// NoRank is the rank of a finding that is about no rank.
const NoRank = -1

// Job is a job with its ranks and nodes.
type Job struct {
	*view.Job
	Alert
	Ranks []*Rank
	Nodes []*Node
	// Norms are the medians of the ranks.
	Norms Norms
}

// Rank is a rank.
type Rank struct {
	*view.Rank
	Alert
}

// Node is a node with its ranks, of one job or of all.
type Node struct {
	Name string
	// Node is nil if the coordinator no longer knows the node.
	*view.Node
	Alert
	Ranks []*Rank
}

// NewPicture judges a State, which it keeps and does not change.
func NewPicture(s *view.State) *Picture {
	p := &Picture{State: s, jobs: map[string]*Job{}, nodes: map[string]*Node{}}
	for _, n := range s.Nodes {
		node := &Node{Name: n.Name, Node: n}
		p.Nodes, p.nodes[node.Name] = append(p.Nodes, node), node
	}
	for _, j := range s.Jobs {
		job := p.build(j)
		p.Jobs, p.jobs[job.ID] = append(p.Jobs, job), job
	}
	for _, n := range p.Nodes {
		n.judge()
	}
	slices.SortStableFunc(p.Nodes, func(a, b *Node) int { return Worse(a.Alert, b.Alert) })
	slices.SortStableFunc(p.Jobs, compareJobs)
	return p
}

// compareJobs sorts finished jobs last, and the newest of the finished jobs first.
func compareJobs(a, b *Job) int {
	if x, y := a.Over(), b.Over(); x != y {
		return cmp.Compare(btoi(x), btoi(y))
	}
	if a.Over() {
		return b.Finished.Compare(a.Finished)
	}
	return Worse(a.Alert, b.Alert)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *Picture) build(j *view.Job) *Job {
	job := &Job{Job: j, Norms: normsOf(j.Ranks)}
	nodes := map[string]*Node{}
	for _, name := range j.Nodes {
		node := &Node{Name: name}
		if known := p.nodes[name]; known != nil {
			node.Node = known.Node
		}
		nodes[name], job.Nodes = node, append(job.Nodes, node)
	}
	slow := p.slow(j)
	for _, r := range j.Ranks {
		rank := &Rank{Rank: r}
		if !job.Over() {
			rank.Alert = rankAlert(r, p.State.Node(r.Node), job.Norms, p.State.At)
			if found := slow[r.Rank]; Worse(found, rank.Alert) < 0 {
				rank.Alert = found
			}
		}
		job.Ranks = append(job.Ranks, rank)
		for _, n := range []*Node{nodes[r.Node], p.nodes[r.Node]} {
			if n != nil {
				n.Ranks = append(n.Ranks, rank)
			}
		}
	}
	job.judge()
	return job
}

// slow returns the alerts of a job's stragglers by rank.
func (p *Picture) slow(j *view.Job) map[int]Alert {
	all := map[int]Alert{}
	for _, f := range j.Slow.Findings {
		for _, rank := range f.Ranks {
			all[rank] = stragglerAlert(f, p.State.At)
		}
	}
	return all
}

// judge sorts nodes and ranks, and sets the job's alert.
func (j *Job) judge() {
	byAlert := func(a, b *Rank) int { return Worse(a.Alert, b.Alert) }
	slices.SortStableFunc(j.Ranks, byAlert)
	for _, n := range j.Nodes {
		n.judge()
	}
	slices.SortStableFunc(j.Nodes, func(a, b *Node) int { return Worse(a.Alert, b.Alert) })
	j.Alert = j.alert()
}

// Over reports whether a job has ended.
func (j *Job) Over() bool { return j.Phase == "finished" }

// Failed reports whether a job has ended in failure, not with success or because a user stopped it.
func (j *Job) Failed() bool {
	return j.Over() && j.Result != nil && !slices.Contains([]report.Ending{report.EndSuccess, report.EndCancelled, report.EndPreempted}, j.Result.Ending)
}

// alert returns the alert of a job.
func (j *Job) alert() Alert {
	switch {
	case j.Over() && j.Result != nil && j.Result.Ending == report.EndSuccess:
		return Alert{Why: j.Waits}
	case j.Over() && j.Result == nil:
		return newAlert(Note, 0, 0, "%s", j.Waits)
	case j.Failed():
		return newAlert(Bad, 0, 0, "%s", cmp.Or(j.Waits, j.Result.Reason))
	case j.Over():
		return newAlert(Note, 0, 0, "%s", cmp.Or(j.Waits, j.Result.Reason))
	case j.Phase == "gathering":
		return newAlert(Warn, byEnd, 0, "waits: %s", j.Waits)
	case j.Phase == "backoff", j.Phase == "stopping" && len(j.Ranks) > 0 && j.Ranks[0].Level == Bad:
		return newAlert(Bad, byEnd, 0, "%s", j.lately())
	case j.Phase == "stopping":
		return newAlert(Note, byEnd, 0, "%s", j.lately())
	}
	return j.worst()
}

// lately returns the reason why a job waits, and why its newest failed attempt was stopped.
func (j *Job) lately() string {
	why, of := "", -1
	for _, m := range j.History {
		if (m.Cause != "" || m.To == "stopping") && m.Attempt != of {
			why, _, _ = strings.Cut(m.Reason, "; ")
			of = m.Attempt
		}
	}
	switch {
	case why == "":
		return "waits: " + j.Waits
	case strings.HasPrefix(j.Waits, why):
		return j.Waits
	}
	return why + "; " + j.Waits
}

// worst returns the alert of a job's worst node or rank, with the number of others at its level.
func (j *Job) worst() Alert {
	var c Alert
	if len(j.Nodes) > 0 && j.Nodes[0].Level > c.Level {
		c = j.Nodes[0].Alert
		c.Why = j.Nodes[0].Name + ": " + c.Why
	}
	if len(j.Ranks) == 0 || j.Ranks[0].Level < max(c.Level, Note) {
		return c
	}
	first := j.Ranks[0]
	c = first.Alert
	c.Why = fmt.Sprintf("rank %d on %s: %s", first.Rank.Rank, first.Node, c.Why)
	same, _ := slices.BinarySearchFunc(j.Ranks, first.Level-1, func(r *Rank, l Level) int { return cmp.Compare(l, r.Level) })
	if same > 1 {
		c.Why += fmt.Sprintf(" (and %s)", units.Plural(same-1, "other"))
	}
	return c
}

// own returns the alert about the node itself, not its ranks.
func (n *Node) own() Alert {
	c := nodeAlert(n.Node)
	switch {
	case c.Level == Bad:
		c.Why = "silent for " + units.Span(n.Silent)
	case n.Node == nil || c.Level > Fine:
	case n.Drained:
		c = newAlert(Note, byPower, 0, "drained: it gets no more ranks")
	case len(n.Excluded) > 0:
		c = newAlert(Note, byPower, 0, "avoided: %s", n.Excluded[0].Why)
	}
	return c
}

// judge sets the node's alert: its own alert, or the alert of its worst rank.
func (n *Node) judge() {
	slices.SortStableFunc(n.Ranks, func(a, b *Rank) int { return Worse(a.Alert, b.Alert) })
	n.Alert = n.own()
	if n.Level < Bad && len(n.Ranks) > 0 && Worse(n.Ranks[0].Alert, n.Alert) < 0 {
		n.Alert = n.Ranks[0].Alert
		n.Why = fmt.Sprintf("rank %d: %s", n.Ranks[0].Rank.Rank, n.Why)
	}
}

// Wrong reports whether a job waits, has failed or makes no progress, or a node is silent. If a job
// is named, only that job counts; otherwise all unfinished jobs count. A finished job is wrong if
// it has an alert.
func (p *Picture) Wrong(job string) bool {
	if j := p.jobs[job]; j != nil && j.Over() {
		return j.Level > Fine
	}
	for _, j := range p.Jobs {
		if (job == "" || j.ID == job) && !j.Over() && (j.Level == Bad || j.Phase == "gathering" || j.State() == "stalled") {
			return true
		}
	}
	return slices.ContainsFunc(p.Nodes, func(n *Node) bool { return n.Silent > 0 })
}

// Finding is an alert about a rank, a job or a node.
type Finding struct {
	Alert
	// Job is empty for a node. Rank is negative if the alert is about no rank.
	Job, Node string
	Rank      int
}

// Findings returns all alerts, the worst first.
func (p *Picture) Findings() (all []Finding) {
	for _, n := range p.Nodes {
		all = append(all, Finding{n.own(), "", n.Name, NoRank})
	}
	for _, j := range p.Jobs {
		all = append(all, Finding{j.Alert, j.ID, "", NoRank})
		for _, r := range j.Ranks {
			all = append(all, Finding{r.Alert, j.ID, r.Node, r.Rank.Rank})
		}
	}
	all = slices.DeleteFunc(all, func(f Finding) bool { return f.Level == Fine })
	slices.SortStableFunc(all, func(a, b Finding) int { return Worse(a.Alert, b.Alert) })
	return all
}

// State returns how a finished job ended, or "gone" if that is unknown. For any other job it
// returns the activity of the ranks, or else the phase.
func (j *Job) State() string {
	switch {
	case j.Failed():
		return "failed"
	case j.Over() && j.Result != nil:
		return string(j.Result.Ending)
	case j.Over():
		return "gone"
	}
	for _, m := range slices.Backward(j.History) {
		if j.Phase == "running" && m.To != "" {
			if m.To == "training" && j.Stalled() {
				return "stalled"
			}
			return m.To
		}
	}
	return j.Phase
}

// Stalled reports whether the heartbeats of all ranks are late.
func (j *Job) Stalled() bool { return j.Norms.BeatAge >= j.Norms.Late() }

// Left returns the time until a job is done at its present pace, in seconds.
func (j *Job) Left(now time.Time) float64 {
	if j.Progress.Done.IsZero() || j.Over() || j.Stalled() {
		return math.NaN()
	}
	return j.Progress.Done.Sub(now).Seconds()
}
