package metrics

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// States of nodes. A node is in the first state that applies, or else ready.
const (
	missing     = "missing"
	drained     = "drained"
	quarantined = "quarantined"
	spare       = "spare"
	ready       = "ready"
)

var nodeStates = []string{ready, spare, missing, drained, quarantined}

func (n *node) state() string {
	switch {
	case n.Silent > 0:
		return missing
	case n.Drained:
		return drained
	case n.quarantined():
		return quarantined
	case len(n.Holds) == 0:
		return spare
	}
	return ready
}

// quarantined reports whether no job may use the node.
func (n *node) quarantined() bool {
	for _, x := range n.Excluded {
		if x.Job == "" {
			return true
		}
	}
	return false
}

// sources shows which sources answer.
func (s sheet) sources(all []source) []source {
	for _, from := range all {
		s.set(up, truth(from.up), from.name)
		if !from.told.IsZero() {
			s.set(dataTimestamp, seconds(from.told), from.name)
		}
		if from.up && from.Version != "" {
			s.set(coordinator, 1, from.name, clean(from.Version, maxName))
		}
	}
	return all
}

// cluster shows nodes, GPUs and jobs by state. Without a known source there is nothing to count.
func (s sheet) cluster(all *seen) {
	if !all.known {
		return
	}
	if all.leading+all.silent > 0 {
		s.set(coordinators, float64(all.leading), "answering")
		s.set(coordinators, float64(all.silent), "silent")
	}
	stand, cards := map[string]int{}, map[string]int{}
	for _, n := range all.nodes {
		state := n.state()
		stand[state]++
		if state == missing {
			cards[missing] += len(n.GPUs)
			continue
		}
		cards["used"] += n.GPUsUsed()
		cards["free"] += len(n.GPUs) - n.GPUsUsed()
	}
	s.each(nodes, nodeStates, stand)
	s.each(gpus, []string{"used", "free", missing}, cards)
	s.each(jobs, phases, all.phases)
}

// charges shows how the time of a cluster's nodes was spent.
func (s sheet) charges(all *seen, t *tally) {
	set := func(f *family, hours float64, of ...string) {
		s.set(f, t.charges.floor(f.base+"\n"+strings.Join(of, "\n"), 3600*hours), of...)
	}
	for _, c := range all.charges {
		kind := clean(c.Kind, maxName)
		if !c.Idle {
			user := clean(c.User, maxName)
			set(chargedNodes, c.NodeHours, user, kind)
			set(chargedGPUs, c.GPUHours, user, kind)
			continue
		}
		set(idleNodes, c.NodeHours, kind)
		set(idleGPUs, c.GPUHours, kind)
		if c.Price > 0 {
			s.set(nodePrice, c.Price, kind)
		}
	}
}

// each shows the number in each state, even if the number is 0.
func (s sheet) each(f *family, states []string, counts map[string]int, labels ...string) {
	for _, state := range states {
		s.set(f, float64(counts[state]), append(slices.Clip(labels), state)...)
	}
}

// nodes shows each node.
func (s sheet) nodes(all *seen) {
	for _, n := range all.nodes {
		s.each(nodeState, nodeStates, map[string]int{n.state(): 1}, n.name)
		s.each(nodeGPUs, []string{"used", "free"}, map[string]int{"used": n.GPUsUsed(), "free": len(n.GPUs) - n.GPUsUsed()}, n.name)
		held := map[string]bool{}
		for _, h := range n.Holds {
			if id := clean(h.Job, maxName); !held[id] {
				held[id] = true
				s.set(nodeJob, 1, n.name, id)
			}
		}
		s.set(nodeCPUsAll, positive(n.CPUs), n.name)
		s.measured(n)
	}
}

// measured shows the measurements of a node, if they are recent.
func (s sheet) measured(n *node) {
	if len(n.Samples) == 0 {
		return
	}
	s.set(nodeTimestamp, seconds(n.Samples[len(n.Samples)-1].At), n.name)
	if age(n.Samples, n.at) > Stale {
		return
	}
	u := n.Now
	s.set(nodeRanks, u.Ranks, n.name)
	s.set(nodeCPUs, u.CPUs, n.name)
	s.set(nodeMemory, u.Memory, n.name)
	s.set(nodeMemoryAll, u.MemoryTotal, n.name)
	s.set(nodeReceived, u.Received, n.name)
	s.set(nodeSent, u.Sent, n.name)
}

// ranks shows each rank that runs.
func (s sheet) ranks(all *seen, t *tally, once bool) {
	for _, j := range all.jobs {
		for _, r := range j.fresh {
			s.rank(j, r, t, once)
		}
	}
}

func (s sheet) rank(j *job, r *view.Rank, t *tally, once bool) {
	of := []string{j.id, strconv.Itoa(r.Rank), clean(r.Node, maxName)}
	s.set(rankCPUs, r.Now.CPUs, of...)
	s.set(rankMemory, r.Now.Memory, of...)
	s.set(rankStep, r.Now.Step, of...)
	s.set(rankStepSeconds, r.Now.StepTime, of...)
	s.set(rankBeat, r.Now.BeatAge+age(r.Samples, j.at).Seconds(), of...)
	s.set(rankGPUUse, r.Now.GPUUse, of...)
	s.set(rankGPUMemory, r.Now.GPUMemory, of...)
	s.set(rankGPUPower, r.Now.GPUPower, of...)
	s.set(rankGPUHeat, r.Now.GPUTemperature, of...)
	if !once {
		s.set(rankLines, t.lines(j, r), of...)
	}
}

// seconds formats a time for Prometheus.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// positive returns a number, or NaN for 0, which means that the number is unknown.
func positive(n int) float64 {
	if n == 0 {
		return math.NaN()
	}
	return float64(n)
}
