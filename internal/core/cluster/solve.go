package cluster

import (
	"cmp"
	"errors"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// solve plans a job on the nodes that it holds and on other nodes, but not on those in except. It
// uses nodes that the job avoids only if there is no other plan.
func (s *State) solve(e *entry, except map[string]bool) (p placement.Plan, whole bool, err error) {
	r, whole, _ := e.state.Wants()
	r = s.capped(e, r, whole)
	for _, avoiding := range []bool{true, false} {
		for sharing := 1; sharing <= e.queue.reservation.colocated(); sharing++ {
			if avoiding && !s.avoidsAny(e) {
				continue
			}
			p, err = placement.Solve(r, s.candidates(e, whole, except, sharing, avoiding))
			if err == nil {
				return p, whole, nil
			}
		}
	}
	e.wait.nodes, e.wait.gpus = 0, 0
	if e.queue.reservation == nil {
		e.expect(r, err, s.usable-len(except))
	}
	return p, whole, err
}

// expect notes how many usable nodes and free GPUs there must at least be before another try can
// succeed. The bounds hold for any order and any sizes, because only absent nodes count as missing
// and a plan has at least one GPU for each rank.
func (e *entry) expect(r placement.Request, err error, usable int) {
	nodes, gpus := 0, 0
	if r.GPU {
		gpus = leastGPUs(r)
		for _, n := range e.held {
			gpus -= len(n.GPUs)
		}
	}
	short, ok := errors.AsType[*placement.InfeasibleError](err)
	if ok && short.Missing > 0 && !byScore(r) && len(e.held) == 0 && r.Order.By != placement.ByList {
		nodes = usable + short.Missing
	}
	e.wait.nodes, e.wait.gpus = nodes, gpus
}

// byScore reports whether a request places ranks on the nodes with the best score, in any order and
// on any number of nodes.
func byScore(r placement.Request) bool {
	return r.Strategy == placement.Pack || r.Strategy == placement.Spread
}

// candidates returns the nodes for a request, each with the share that the job may have. If
// avoiding is true, it omits nodes that the job avoids and does not hold.
func (s *State) candidates(e *entry, whole bool, except map[string]bool, sharing int, avoiding bool) []placement.Node {
	list := make([]placement.Node, 0, len(s.nodes))
	add := func(n *clusterNode, offer placement.Node) {
		share, holds := e.held[n.facts.Name]
		switch {
		case e.leaving[n.facts.Name]:
		case holds && whole:
			list = append(list, share)
		case avoiding && s.avoids(e, n.facts.Name):
		case !holds && !n.drained && !except[n.facts.Name]:
			list = append(list, e.only(offer))
		}
	}
	res := e.queue.reservation
	if res == nil {
		for _, n := range s.nodes {
			add(n, n.free)
		}
		return list
	}
	for name, share := range res.held {
		n := s.nodes[name]
		add(n, n.offer(share, res, sharing, nil))
	}
	return list
}

// only removes the GPUs that a job may not have.
func (e *entry) only(n placement.Node) placement.Node {
	if e.GPUs != nil {
		n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool {
			return !slices.Contains(e.GPUs, g.Index)
		})
	}
	return n
}

// castShadow chooses the nodes that the first job of a queue will get, and reports whether it chose
// any anew.
func (s *State) castShadow(q *queue) bool {
	e := q.waiting[0]
	if q.first == e {
		return false
	}
	q.first, q.shadow = e, s.shadow(e)
	return true
}

// dropShadow makes the queue cast its shadow again if a lost node was in the shadow. The first job
// may then have to preempt other jobs.
func (q *queue) dropShadow(node string) {
	if q.shadow[node] {
		q.first, q.shadow, q.better = nil, nil, true
	}
}

func (s *State) dropShadows(n *clusterNode) {
	s.queue.dropShadow(n.facts.Name)
	for _, e := range n.holders {
		if e.inner != nil {
			e.inner.dropShadow(n.facts.Name)
		}
	}
}

// shadow makes a plan for a job as if no other job held anything, on the nodes with the most free
// GPUs, and returns the plan's nodes. It is nil if there is no such plan.
func (s *State) shadow(e *entry) map[string]bool {
	if e.wait.nodes > s.usable {
		return nil
	}
	r, whole, _ := e.state.Wants()
	all := s.candidates(e, whole, nil, e.queue.reservation.colocated(), false)
	slices.SortFunc(all, func(a, b placement.Node) int {
		return cmp.Or(job.FreeGPUs(b)-job.FreeGPUs(a), a.Addr.Unmap().Compare(b.Addr.Unmap()), cmp.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, len(all))
	for i := range all {
		n := &all[i]
		if r.Order.By != placement.ByList || slices.Contains(r.Order.List, n.Name) {
			names = append(names, n.Name)
		}
		if _, holds := e.held[n.Name]; !holds {
			*n = e.only(s.unheld(e, n.Name))
		}
	}
	if !byScore(r) {
		r.Order = placement.Order{By: placement.ByList, List: names}
	}
	plan, err := placement.Solve(r, all)
	if err != nil {
		return nil
	}
	shadow := make(map[string]bool, len(plan.Groups))
	for _, g := range plan.Groups {
		shadow[g.Node.Name] = true
	}
	return shadow
}

// unheld returns a node as if no job held a share of it.
func (s *State) unheld(e *entry, name string) placement.Node {
	if res := e.queue.reservation; res != nil {
		return res.held[name]
	}
	return s.nodes[name].facts
}

// ranks is the least number of ranks of a request on that many nodes. If the request is for all
// GPUs, each node counts as one rank, because a node has at least one GPU.
func ranks(r placement.Request, nodes int) int {
	if len(r.PerNode) == 1 {
		return nodes * max(1, r.PerNode[0])
	}
	sum := 0
	for _, n := range r.PerNode[:nodes] {
		sum += n
	}
	return sum
}
