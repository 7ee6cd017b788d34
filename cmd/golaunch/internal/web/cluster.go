package web

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// totals are the numbers of a cluster.
type totals struct {
	Nodes   int `json:"nodes"`
	Ready   int `json:"ready"`
	Silent  int `json:"silent"`
	Drained int `json:"drained"`
	Avoided int `json:"avoided"`
	GPUs    int `json:"gpus"`
	Used    int `json:"used"`
	Ranks   int `json:"ranks"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Over    int `json:"over"`
}

// summary is a job in the list of jobs.
type summary struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Phase     string `json:"phase"`
	Waits     string `json:"waits"`
	Submitted moment `json:"submitted"`
	Finished  moment `json:"finished"`
	Reserve   bool   `json:"reserve"`
	Within    string `json:"within"`
	Nodes     int    `json:"nodes"`
	Ranks     int    `json:"ranks"`
	GPUs      int    `json:"gpus"`
	Attempt   int    `json:"attempt"`
	Restarts  int    `json:"restarts"`
	Most      int    `json:"most"`
	Ending    string `json:"ending"`
	Goodput   real   `json:"goodput"`
	// Slow is the costliest straggler. Beat is the age of the newest heartbeat of any rank, in
	// seconds.
	Slow string `json:"slow"`
	Beat real   `json:"beat"`
	// State is the activity of the ranks. Level and Why are the job's alert.
	State string `json:"state"`
	Level string `json:"level"`
	Why   string `json:"why"`
	progress
}

type progress struct {
	Step     real   `json:"step"`
	Total    real   `json:"total"`
	StepTime real   `json:"step_time"`
	Done     moment `json:"done"`
}

func progressOf(p report.Progress) progress {
	return progress{real(p.Step), real(p.Total), real(p.StepTime), when(p.Done)}
}

func summaryOf(j *alert.Job, now time.Time) summary {
	s := summary{
		ID: text(j.ID, maxName), Title: text(j.Title, maxTitle), Phase: text(j.Phase, maxName), Waits: text(j.Waits, maxReason),
		Submitted: when(j.Submitted), Finished: when(j.Finished), Reserve: j.Reserve, Within: text(j.Within, maxName), Nodes: len(j.Nodes),
		Ranks: j.JobStatus.Ranks, GPUs: j.GPUs, Attempt: j.Attempt, Restarts: j.Restarts, Most: j.MaxRestarts, Goodput: real(math.NaN()),
		Beat: real(newestBeat(j.Job, now)), progress: progressOf(j.Progress),
		State: text(j.State(), maxName), Level: j.Level.String(), Why: text(j.Why, maxReason),
	}
	if math.IsNaN(j.Left(now)) {
		s.Done = moment{}
	}
	if len(j.Slow.Findings) > 0 {
		s.Slow = text(j.Slow.Findings[0].Sentence(now), maxReason)
	}
	if j.Result != nil {
		s.Ending = string(j.Result.Ending)
		if cause := j.Result.Cause; cause != nil {
			s.Attempt = max(s.Attempt, cause.Attempt)
		}
	}
	if j.JobStatus.Goodput != nil {
		s.Goodput = real(j.JobStatus.Goodput.Goodput)
	}
	return s
}

// newestBeat is the age of a job's newest heartbeat; NaN if unknown.
func newestBeat(j *view.Job, now time.Time) float64 {
	newest := math.NaN()
	for _, r := range j.Ranks {
		if age := r.Now.BeatAge + ago(now, r.Heard); r.Exit == nil && !(newest <= age) && !math.IsNaN(age) {
			newest = age
		}
	}
	return newest
}

// cluster adds the parts of the page about all nodes and jobs.
func (p parts) cluster(of *alert.Picture) {
	s := of.State
	p.add("totals", totalsOf(s))
	jobs := []summary{}
	for _, j := range s.Jobs {
		jobs = append(jobs, summaryOf(of.Job(j.ID), s.At))
	}
	p.add("jobs", jobs)
	p.add("charges", chargesOf(s))
	use := useByNode(s)
	each := func(value func(*view.Node) float64) iter.Seq[float64] { return values(s.Nodes, value) }
	p.texts("n.name", values(s.Nodes, func(n *view.Node) string { return n.Name }))
	p.texts("n.state", values(s.Nodes, stateOf))
	p.texts("n.jobs", values(s.Nodes, holders))
	p.numbers("n.gpus", whole, each(func(n *view.Node) float64 { return float64(len(n.GPUs)) }))
	p.numbers("n.used", whole, each(func(n *view.Node) float64 { return float64(n.GPUsUsed()) }))
	p.numbers("n.gpu_use", 3, each(func(n *view.Node) float64 { return units.Mean(use[n.Name]) }))
	p.numbers("n.cpus", 3, each(func(n *view.Node) float64 { return n.Now.CPUs }))
	p.numbers("n.cores", whole, each(func(n *view.Node) float64 { return float64(n.CPUs) }))
	p.numbers("n.memory", 3, each(func(n *view.Node) float64 { return n.Now.Memory }))
	p.numbers("n.memory_total", 3, each(func(n *view.Node) float64 { return n.Now.MemoryTotal }))
	p.numbers("n.received", 3, each(func(n *view.Node) float64 { return n.Now.Received }))
	p.numbers("n.sent", 3, each(func(n *view.Node) float64 { return n.Now.Sent }))
	p.numbers("n.ranks", whole, each(func(n *view.Node) float64 { return n.Now.Ranks }))
	p.numbers("n.heard", whole, each(func(n *view.Node) float64 { return ago(s.At, n.Heard) }))
}

// maxCharges bounds the shown charges: the charges with the most node-hours are shown.
const maxCharges = 200

// charge is the use of one kind of nodes for which the jobs of a user were charged, or the idle
// time of that kind.
type charge struct {
	User  string `json:"user"`
	Kind  string `json:"kind"`
	Idle  bool   `json:"idle"`
	Nodes real   `json:"nodes"`
	GPUs  real   `json:"gpus"`
	Cost  real   `json:"cost"`
}

func chargesOf(s *view.State) []charge {
	all := []charge{}
	for _, c := range s.Charges {
		x := charge{text(listing.UserName(c.User), maxName), text(c.Kind, maxName), c.Idle, real(c.NodeHours), real(c.GPUHours), real(math.NaN())}
		if c.Price > 0 {
			x.Cost = real(c.Price * c.NodeHours)
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, b charge) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return all[:min(len(all), maxCharges)]
}

func totalsOf(s *view.State) totals {
	t := totals{Nodes: len(s.Nodes)}
	for _, n := range s.Nodes {
		t.GPUs, t.Used = t.GPUs+len(n.GPUs), t.Used+n.GPUsUsed()
		switch stateOf(n) {
		case "silent":
			t.Silent++
		case "drained":
			t.Drained++
		case "avoided":
			t.Avoided++
		default:
			t.Ready++
		}
	}
	for _, j := range s.Jobs {
		if j.Finished.IsZero() {
			t.Ranks += j.JobStatus.Ranks
		}
		switch {
		case !j.Finished.IsZero():
			t.Over++
		case j.Phase == "gathering":
			t.Waiting++
		default:
			t.Running++
		}
	}
	return t
}

// stateOf is a node's state in a word. If several states apply, it is the worst.
func stateOf(n *view.Node) string {
	switch {
	case n.Silent > 0:
		return "silent"
	case n.Drained:
		return "drained"
	case slices.ContainsFunc(n.Excluded, func(x report.Exclusion) bool { return x.Job == "" }):
		return "avoided"
	}
	return "ready"
}

func holders(n *view.Node) string {
	var jobs []string
	for _, h := range n.Holds {
		jobs = append(jobs, h.Job)
	}
	return strings.Join(jobs, ", ")
}

// useByNode is the use of the ranks' GPUs, by node.
func useByNode(s *view.State) map[string][]float64 {
	use := map[string][]float64{}
	for _, j := range s.Jobs {
		for _, r := range j.Ranks {
			if r.Exit == nil && !math.IsNaN(r.Now.GPUUse) {
				use[r.Node] = append(use[r.Node], r.Now.GPUUse)
			}
		}
	}
	return use
}

func ago(now, then time.Time) float64 {
	if then.IsZero() {
		return math.NaN()
	}
	return max(0, now.Sub(then).Seconds())
}

func values[T, V any](all []T, value func(T) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, one := range all {
			if !yield(value(one)) {
				return
			}
		}
	}
}
