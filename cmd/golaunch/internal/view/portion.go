package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// portion is what one source has reported.
type portion struct {
	status report.Status
	// asked is when the source was asked last, and answered when it last answered.
	asked, answered time.Time
	trouble         error
	nodes           map[string]*Node
	ranks           map[subject]*Rank
	// clocks says how far the clock of each node is behind this one.
	clocks map[string]time.Duration
	// judges watch the jobs for stragglers, and slow is what they have found.
	judges map[string]*judge
	slow   map[string]Slow
}

type subject struct {
	job  string
	rank int
}

func newPortion() *portion {
	return &portion{
		nodes: map[string]*Node{}, ranks: map[subject]*Rank{}, clocks: map[string]time.Duration{}, judges: map[string]*judge{},
		slow: map[string]Slow{},
	}
}

// take adds the samples of a node. It replaces nodes and ranks, since readers may hold the old
// ones.
func (p *portion) take(n launcher.NodeSamples, history time.Duration) {
	node := &Node{Now: report.Unmeasured()}
	if old := p.nodes[n.Node]; old != nil {
		*node = *old
	}
	p.nodes[n.Node] = node
	if n.Missing != "" {
		node.Missing = n.Missing
		return
	}
	now := time.Now()
	behind := now.Sub(n.Now)
	if old, known := p.clocks[n.Node]; known {
		behind = min(behind, old+time.Millisecond) // the answer with the least delay is the most exact; clocks drift
	}
	p.clocks[n.Node] = behind
	node.Heard, node.Missing = now, ""
	for _, s := range n.Series {
		if s.Rank < 0 {
			node.Samples = extend(node.Samples, s.Samples, behind, now.Add(-history))
			if len(node.Samples) > 0 {
				node.Now = node.Samples[len(node.Samples)-1].Usage
			}
			continue
		}
		p.takeRank(n.Node, s, behind, now, history)
	}
}

func (p *portion) takeRank(node string, s report.Series, behind time.Duration, now time.Time, history time.Duration) {
	id := subject{s.Job, s.Rank}
	rank := &Rank{}
	if old := p.ranks[id]; old != nil {
		*rank = *old
	}
	if len(s.Samples) > 0 {
		newest := s.Samples[len(s.Samples)-1]
		if rank.Node != "" && rank.Node != node && !newest.At.Add(behind).After(rank.last()) {
			return // the sample is of an older attempt, which ran elsewhere
		}
	}
	rank.Job, rank.Rank, rank.Node, rank.LocalRank, rank.PID, rank.GPU = s.Job, s.Rank, node, s.LocalRank, s.PID, s.GPU
	rank.Exit, rank.Does, rank.Heard = s.Exit, s.Does, now
	rank.Samples = extend(rank.Samples, s.Samples, behind, now.Add(-history))
	if n := len(rank.Samples); n > 0 {
		rank.Now, rank.Attempt = rank.Samples[n-1].Usage, rank.Samples[n-1].Attempt
	}
	p.ranks[id] = rank
}

func (r *Rank) last() time.Time {
	if len(r.Samples) == 0 {
		return time.Time{}
	}
	return r.Samples[len(r.Samples)-1].At
}

// sameSample is the greatest difference between two times of one sample. The times differ because
// the estimate of a node's clock changes.
const sameSample = 200 * time.Millisecond

// extend appends newer samples, converted to this machine's time, and drops samples from before
// from. It changes no sample that readers may hold.
func extend(old, samples []report.Sample, behind time.Duration, from time.Time) []report.Sample {
	last := time.Time{}
	if len(old) > 0 {
		last = old[len(old)-1].At.Add(sameSample)
	}
	for _, s := range samples {
		if s.At = s.At.Add(behind); s.At.After(last) {
			old = append(old, s)
		}
	}
	i, _ := slices.BinarySearchFunc(old, from, func(s report.Sample, t time.Time) int { return s.At.Compare(t) })
	return old[min(i, max(0, len(old)-1)):]
}

// prune drops nodes and jobs that the source no longer has.
func (p *portion) prune() {
	jobs, nodes := map[string]bool{}, map[string]bool{}
	for _, j := range p.status.Jobs {
		jobs[j.ID] = true
	}
	for _, n := range p.status.Nodes {
		nodes[n.Name] = true
	}
	maps.DeleteFunc(p.ranks, func(of subject, _ *Rank) bool { return !jobs[of.job] })
	maps.DeleteFunc(p.nodes, func(name string, _ *Node) bool { return !nodes[name] })
	maps.DeleteFunc(p.clocks, func(name string, _ time.Duration) bool { return !nodes[name] })
}

// ranksByJob returns the ranks of each job, in order.
func (p *portion) ranksByJob() map[string][]*Rank {
	ranks := map[string][]*Rank{}
	for of, r := range p.ranks {
		ranks[of.job] = append(ranks[of.job], r)
	}
	for _, all := range ranks {
		slices.SortFunc(all, byRank)
	}
	return ranks
}

func byRank(a, b *Rank) int { return cmp.Compare(a.Rank, b.Rank) }

// judge looks for stragglers in each running job. It takes samples up to until, by which time all
// nodes have reported, and from when the model began: earlier samples are sparse, since no client
// asked for them.
func (p *portion) judge(until, began time.Time) {
	ranks := p.ranksByJob()
	for _, j := range p.status.Jobs {
		mine := ranks[j.ID]
		if j.Phase != "running" || len(mine) == 0 {
			delete(p.judges, j.ID)
			delete(p.slow, j.ID)
			continue
		}
		if p.judges[j.ID] == nil {
			p.judges[j.ID] = &judge{fed: began}
		}
		p.slow[j.ID] = p.judges[j.ID].consider(j.Ranks, mine, until, time.Second)
	}
	maps.DeleteFunc(p.judges, func(id string, _ *judge) bool {
		return !slices.ContainsFunc(p.status.Jobs, func(j report.JobStatus) bool { return j.ID == id })
	})
}
