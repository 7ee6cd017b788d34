package cluster

import "github.com/golaunch/golaunch/placement"

// Demand is the need of a job or reservation that waits for nodes of the cluster.
type Demand struct {
	Job string
	// Request asks for the fewest nodes with which the job can go on, including the nodes that it
	// holds.
	Request placement.Request
	// Holds are the job's shares of nodes that the request includes. Not are other nodes that the
	// job must not get, because it holds them already or gives them up.
	Holds []placement.Node
	Not   map[string]bool
	// GPUs and Backfill are as in [Spec].
	GPUs     []int
	Backfill bool
}

// Offer is the part of a node that jobs do not hold.
type Offer struct {
	Node, Free placement.Node
	// Drained says that no job can get the node any more. Held says that a job or reservation holds
	// a part of the node.
	Drained, Held bool
}

// Demands returns the demands of jobs that wait for nodes of the cluster, in the order of their
// turns. Jobs that wait within a reservation are not included, because more nodes would not help
// them.
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

// Offers returns all nodes, by name.
func (s *State) Offers() []Offer {
	list := make([]Offer, 0, len(s.nodes))
	for _, name := range sorted(s.nodes) {
		n := s.nodes[name]
		list = append(list, Offer{Node: n.facts, Free: n.free, Drained: n.drained, Held: len(n.holders) > 0})
	}
	return list
}
