package cluster

import (
	"cmp"
	"errors"
	"slices"

	"github.com/golaunch/golaunch/placement"
)

// solve plans what a job lacks, on the nodes that it holds and on others but those not to be touched; on those that it avoids only
// if there is no other way.
func (s *State) solve(e *entry, except map[string]bool) (p placement.Plan, whole bool, err error) {
	r, whole, _ := e.state.Wants()
	for _, picky := range []bool{true, false} {
		for sharing := 1; sharing <= e.queue.reservation.colocated(); sharing++ {
			if picky && !s.picky(e) {
				continue
			}
			p, err = placement.Solve(r, s.candidates(e, whole, except, sharing, picky))
			if err == nil {
				return p, whole, nil
			}
		}
	}
	e.nodes, e.gpus = 0, 0
	if e.queue.reservation == nil {
		e.expect(r, err, s.usable-len(except))
	}
	return p, whole, err
}

// expect notes how many usable nodes and free GPUs a job needs at least before another try can succeed. The bounds hold whatever
// the order or the sizes: only nodes that are not there are missing, and a plan has no fewer GPUs than ranks.
func (e *entry) expect(r placement.Request, err error, usable int) {
	if r.GPU {
		e.gpus = ranks(r, r.MinNodes)
		for _, n := range e.held {
			e.gpus -= len(n.GPUs)
		}
	}
	short, ok := errors.AsType[*placement.InfeasibleError](err)
	if ok && short.Missing > 0 && !loose(r) && len(e.held) == 0 && r.Order.By != placement.ByList {
		e.nodes = usable + short.Missing
	}
}

// loose says that ranks go to the nodes with the best score, in whatever order and however many these are.
func loose(r placement.Request) bool {
	return r.Strategy == placement.Pack || r.Strategy == placement.Spread
}

// candidates are the nodes for a request, with what a job may have of them; with picky none that it avoids, but those that it holds.
func (s *State) candidates(e *entry, whole bool, except map[string]bool, sharing int, picky bool) []placement.Node {
	list := make([]placement.Node, 0, len(s.nodes))
	add := func(n *node, offer placement.Node) {
		share, holds := e.held[n.facts.Name]
		switch {
		case e.leaving[n.facts.Name]:
		case holds && whole:
			list = append(list, share)
		case picky && s.avoids(e, n.facts.Name):
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
		add(n, n.offer(share, res, sharing))
	}
	return list
}

// only leaves the GPUs that a job may have.
func (e *entry) only(n placement.Node) placement.Node {
	if e.GPUs != nil {
		n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool { return !slices.Contains(e.GPUs, g.Index) })
	}
	return n
}

// cast chooses the nodes that the first of a queue is going to get, and says whether these are others than before.
func (s *State) cast(q *queue) bool {
	e := q.waiting[0]
	if q.first == e {
		return false
	}
	q.first, q.shadow = e, s.shadow(e)
	return true
}

// unshadow has the shadow cast anew when a node of it is gone.
func (q *queue) unshadow(node string) {
	if q.shadow[node] {
		q.first, q.shadow = nil, nil
	}
}

func (s *State) unshadow(n *node) {
	s.queue.unshadow(n.facts.Name)
	for _, e := range n.holders {
		if e.inner != nil {
			e.inner.unshadow(n.facts.Name)
		}
	}
}

// shadow has the nodes of a plan for a job as if no job held anything but itself, of the nodes with the most free GPUs. It is nil
// if there is no such plan.
func (s *State) shadow(e *entry) map[string]bool {
	if e.nodes > s.usable {
		return nil
	}
	r, whole, _ := e.state.Wants()
	all := s.candidates(e, whole, nil, e.queue.reservation.colocated(), false)
	slices.SortFunc(all, func(a, b placement.Node) int {
		return cmp.Or(free(b)-free(a), a.Addr.Unmap().Compare(b.Addr.Unmap()), cmp.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, len(all))
	for i := range all {
		n := &all[i]
		if r.Order.By != placement.ByList || slices.Contains(r.Order.List, n.Name) {
			names = append(names, n.Name)
		}
		if _, holds := e.held[n.Name]; !holds {
			*n = e.only(s.bare(e, n.Name))
		}
	}
	if !loose(r) {
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

// bare is a node as if no job held anything of it.
func (s *State) bare(e *entry, name string) placement.Node {
	if res := e.queue.reservation; res != nil {
		return res.held[name]
	}
	return s.nodes[name].facts
}

func free(n placement.Node) int {
	free := 0
	for _, g := range n.GPUs {
		if g.HeldBy == "" {
			free++
		}
	}
	return free
}

// ranks is how many ranks a request for that many nodes is for, at least: a node has at least one GPU.
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
