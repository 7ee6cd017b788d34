package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// seen merges all sources that answer.
type seen struct {
	jobs  []*job
	nodes []*node
	// phases counts all jobs, including the jobs that the field jobs omits.
	phases map[string]int
	// leading and silent count the coordinators of clusters that have several.
	leading, silent int
	// charges are what the cluster has charged for its nodes since the time counted.
	charges []report.Charge
	counted time.Time
	// known is true if a source has answered lately. blind is true if a source does not answer:
	// then more jobs and nodes may exist than are shown.
	known, blind bool
}

// job is a job with the values that its metrics need.
type job struct {
	*view.Job
	id string
	// at is the time of the source's state.
	at time.Time
	// mine are the ranks on the job's present nodes. fresh are the ranks of mine that run and were
	// measured lately.
	mine, fresh []*view.Rank
}

func (j *job) over() bool { return !j.Finished.IsZero() }

type node struct {
	*view.Node
	name string
	at   time.Time
}

// gather merges sources. If two jobs or nodes have the same name, as on a machine where several
// jobs have their own coordinators, only the running one counts, or else the newest.
func gather(sources []source) *seen {
	all := &seen{phases: map[string]int{}}
	jobs, nodes := map[string]*job{}, map[string]*node{}
	for _, s := range sources {
		all.blind = all.blind || !s.up
		if !s.known() {
			continue
		}
		all.known = true
		if n := len(s.Coordinators); n > 1 {
			all.leading, all.silent = all.leading+n-len(s.Silent), all.silent+len(s.Silent)
		}
		if len(s.Charges) > 0 {
			all.charges, all.counted = s.Charges, s.Counted
		}
		for _, j := range s.Jobs {
			next := newJob(j, s.At)
			if old := jobs[next.id]; old == nil || old.over() && !next.over() || old.over() == next.over() && next.Submitted.After(old.Submitted) {
				jobs[next.id] = next
			}
		}
		for _, n := range s.Nodes {
			next := &node{n, clean(n.Name, maxName), s.At}
			if old := nodes[next.name]; old == nil || next.Heard.After(old.Heard) {
				nodes[next.name] = next
			}
		}
	}
	for _, j := range jobs {
		all.phases[j.Phase]++
	}
	all.nodes = slices.SortedFunc(maps.Values(nodes), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	all.jobs = shown(jobs)
	return all
}

// shown returns the jobs with metrics: unfinished jobs, and the jobs that finished last.
func shown(jobs map[string]*job) []*job {
	open, over := []*job{}, []*job{}
	for _, j := range jobs {
		if j.over() {
			over = append(over, j)
		} else {
			open = append(open, j)
		}
	}
	slices.SortFunc(open, func(a, b *job) int { return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.id, b.id)) })
	slices.SortFunc(over, func(a, b *job) int { return cmp.Or(b.Finished.Compare(a.Finished), cmp.Compare(a.id, b.id)) })
	return append(open[:min(len(open), MaxOpen)], over[:min(len(over), MaxOver)]...)
}

func newJob(j *view.Job, at time.Time) *job {
	next := &job{Job: j, id: clean(j.ID, maxName), at: at}
	if next.over() {
		return next
	}
	has := map[string]bool{}
	for _, name := range j.Nodes {
		has[name] = true
	}
	for _, r := range j.Ranks {
		if !has[r.Node] {
			continue // the rank's node was lost, and cannot report the end of the rank
		}
		next.mine = append(next.mine, r)
		if r.Exit == nil && age(r.Samples, at) <= Stale {
			next.fresh = append(next.fresh, r)
		}
	}
	return next
}

// age is the age of the newest sample.
func age(all []report.Sample, now time.Time) time.Duration {
	if len(all) == 0 {
		return math.MaxInt64
	}
	return now.Sub(all[len(all)-1].At)
}

// eachGPU returns one rank for each GPU, since ranks that share a GPU report the same readings.
func eachGPU(ranks []*view.Rank) (some []*view.Rank) {
	seen := map[string]bool{}
	for _, r := range ranks {
		if r.GPU == "" || !seen[r.GPU] {
			some = append(some, r)
		}
		seen[r.GPU] = true
	}
	return some
}

// known returns the known values of ranks.
func known(ranks []*view.Rank, value func(*view.Rank) float64) (all []float64) {
	for _, r := range ranks {
		if v := value(r); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	return all
}

func sum(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	total := 0.0
	for _, v := range all {
		total += v
	}
	return total
}

func least(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return slices.Min(all)
}

func most(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return slices.Max(all)
}
