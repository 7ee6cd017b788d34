package cluster

import "github.com/golaunch/golaunch/placement"

// Demand is what a job or reservation needs that waits for nodes of the cluster.
type Demand struct {
	Job string
	// Request is for the fewest nodes with which the job can go on, including those that it holds.
	Request placement.Request
	// Holds are its shares of nodes that the request includes. Not are other nodes that it must not
	// be given, because it holds them already or gives them up.
	Holds []placement.Node
	Not   map[string]bool
	// GPUs and Backfill are as in [Spec].
	GPUs     []int
	Backfill bool
}

// Offer is a node with what jobs do not hold of it.
type Offer struct {
	Node, Free placement.Node
	// Drained says that no job is given the node, and Held that a job or reservation has something
	// of it.
	Drained, Held bool
}

// Demands are what waits for nodes of the cluster, in the order of its turns. What waits within a
// reservation is not among them, for more nodes would not help it.
func (s *State) Demands() []Demand {
	list := make([]Demand, 0, len(s.queue.waiting))
	for _, e := range s.queue.waiting {
		r, whole, wants := e.state.Wants()
		if !wants {
			continue
		}
		d := Demand{Job: e.Job.ID, GPUs: e.GPUs, Backfill: e.Backfill}
		if whole {
			r.MaxNodes = r.MinNodes
			if len(r.PerNode) > 1 {
				r.PerNode = r.PerNode[:r.MinNodes]
			}
		} else {
			r.MinNodes = r.MaxNodes
		}
		d.Request = r
		for _, name := range sorted(e.held) {
			if whole && !e.leaving[name] {
				d.Holds = append(d.Holds, e.held[name])
				continue
			}
			if d.Not == nil {
				d.Not = map[string]bool{}
			}
			d.Not[name] = true
		}
		list = append(list, d)
	}
	return list
}

// Offers are all nodes, by name.
func (s *State) Offers() []Offer {
	list := make([]Offer, 0, len(s.nodes))
	for _, name := range sorted(s.nodes) {
		n := s.nodes[name]
		list = append(list, Offer{Node: n.facts, Free: n.free, Drained: n.drained, Held: len(n.holders) > 0})
	}
	return list
}
