package view

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/straggler"
)

const (
	// late is the time to wait for samples, in addition to their interval.
	late = 500 * time.Millisecond
	// sparse is how often agents take samples while no client asks; see the agent's calmEvery.
	sparse = 5 * time.Second
)

// judge looks for stragglers among the ranks of a job. It starts over when ranks move or restart.
type judge struct {
	watch *straggler.Watch
	// nodes has the node of each rank; empty where it is unknown.
	nodes []string
	// attempt is the attempt of the ranks, and fed the time up to which their samples were judged.
	attempt int
	fed     time.Time
}

// Slow are the stragglers of a job.
type Slow struct {
	// Findings are sorted, the costliest first.
	Findings []straggler.Finding
	// Ratio is how many times longer than the median the slowest straggler takes: 1 without
	// stragglers, NaN if unknown.
	Ratio float64
}

// consider judges the new samples of a job's ranks up to a time. world is the number of ranks, and
// every is the interval of samples.
func (j *judge) consider(world int, ranks []*Rank, now time.Time, every time.Duration) Slow {
	if !j.same(world, ranks) && !j.begin(world, ranks, every) {
		return Slow{Ratio: math.NaN()}
	}
	j.feed(ranks, now.Add(-late))
	return Slow{slices.Clone(j.watch.Findings()), j.watch.Ratio()}
}

// same reports whether the ranks are on the same nodes as before.
func (j *judge) same(world int, ranks []*Rank) bool {
	if j.watch == nil || world != len(j.nodes) {
		return false
	}
	for _, r := range ranks {
		if r.Rank >= world || r.Node != j.nodes[r.Rank] || r.Attempt != j.attempt {
			return false
		}
	}
	return true
}

// begin starts over. It returns false if the ranks are too few, or not of one attempt.
func (j *judge) begin(world int, ranks []*Rank, every time.Duration) bool {
	if len(ranks) < 2 {
		return false
	}
	place := straggler.Place{Every: every, Names: []string{""}, Node: make([]int, world)}
	nodes := make([]string, world)
	index := map[string]int{}
	for _, r := range ranks {
		if r.Rank >= world || r.Attempt != ranks[0].Attempt {
			return false
		}
		if _, known := index[r.Node]; !known {
			index[r.Node] = len(place.Names)
			place.Names = append(place.Names, r.Node)
		}
		place.Node[r.Rank], nodes[r.Rank] = index[r.Node], r.Node
	}
	watch, err := straggler.New(place)
	if err != nil {
		return false
	}
	*j = judge{watch: watch, nodes: nodes, attempt: ranks[0].Attempt, fed: j.fed}
	return true
}

// feed gives the watch the new samples up to a time, in their order.
func (j *judge) feed(ranks []*Rank, until time.Time) {
	type seen struct {
		at time.Time
		straggler.Sample
	}
	var fresh []seen
	for _, r := range ranks {
		for _, s := range slices.Backward(r.Samples) {
			if !s.At.After(j.fed) {
				break
			}
			if s.At.After(until) || s.Attempt != j.attempt {
				continue
			}
			one := straggler.Nothing(r.Rank)
			one.Power, one.Use, one.CPU, one.Lines = s.GPUPower/s.GPUPowerLimit, s.GPUUse, s.CPUs, s.Lines
			if !math.IsNaN(s.Step) && !math.IsNaN(s.BeatAge) {
				one.Step, one.Beat = int64(s.Step), s.At.Add(-time.Duration(s.BeatAge*float64(time.Second)))
			}
			fresh = append(fresh, seen{s.At, one})
		}
	}
	slices.SortFunc(fresh, func(a, b seen) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Rank, b.Rank)) })
	for _, s := range fresh {
		for j.fed.IsZero() || s.at.Sub(j.fed) > time.Second {
			if j.fed.IsZero() || s.at.Sub(j.fed) > time.Hour {
				j.fed = s.at
				break
			}
			j.fed = j.fed.Add(time.Second)
			j.watch.Tick(j.fed)
		}
		j.watch.Take(s.at, s.Sample)
	}
	if len(fresh) > 0 {
		j.fed = fresh[len(fresh)-1].at
		j.watch.Tick(j.fed)
	}
}

// Past looks for stragglers in samples of the past. While no client asked, samples were sparse, so
// stragglers of low cost are dropped.
func Past(world int, ranks []*Rank, now time.Time) Slow {
	s := new(judge).consider(world, ranks, now.Add(late), sparse)
	s.Findings = slices.DeleteFunc(s.Findings, func(f straggler.Finding) bool { return f.Cost < straggler.Worth })
	return s
}

// Past returns the state with the stragglers of [Past] in each running job that was not watched.
func (s *State) Past() *State {
	past := *s
	past.Jobs = slices.Clone(s.Jobs)
	for i, j := range s.Jobs {
		if j.Phase == "running" && len(j.Slow.Findings) == 0 {
			seen := *j
			seen.Slow, past.Jobs[i] = Past(j.JobStatus.Ranks, j.Ranks, s.At), &seen
		}
	}
	return &past
}
