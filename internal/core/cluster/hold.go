package cluster

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// hold gives a job a share of a node.
func (s *State) hold(e *entry, share placement.Node) {
	n := s.nodes[share.Name]
	if len(e.held) == 0 {
		s.started++
		e.started = s.started
	}
	s.handOver(e, share)
	n.holders = insert(n.holders, e, bySubmission)
	s.refresh(n)
}

// drop takes a node from a job.
func (s *State) drop(e *entry, n *clusterNode) {
	s.takeBack(e, n.facts.Name)
	n.holders = remove(n.holders, e, bySubmission)
	s.refresh(n)
	s.letLeave(n)
}

// handOver notes which share of a node a job has.
func (s *State) handOver(e *entry, share placement.Node) {
	s.charge(s.nodes[share.Name])
	s.count(e, len(share.GPUs)-len(e.held[share.Name].GPUs))
	e.held[share.Name] = share
}

// takeBack notes that a job no longer has a share of a node.
func (s *State) takeBack(e *entry, node string) {
	if n := s.nodes[node]; n != nil { // forget has already charged the time of a lost node
		s.charge(n)
	}
	s.count(e, -len(e.held[node].GPUs))
	delete(e.held, node)
	if e.yields != nil && len(e.held) == 0 {
		s.stopYielding(e)
	}
}

// count adds to the GPUs that a job and its user hold. Within a reservation, the GPUs count for the
// reservation's user.
func (s *State) count(e *entry, gpus int) {
	e.gpus += gpus
	if e.queue.reservation != nil || gpus == 0 {
		return
	}
	p := e.purse()
	if s.used[p] += gpus; s.used[p] == 0 {
		delete(s.used, p)
	}
}

// charge charges the holders of a node for its time until now. It must be called before each change
// of their shares.
func (s *State) charge(n *clusterNode) {
	holders, each, idle := n.divide(s.at)
	for i, e := range holders {
		if each[i] != (charge.Time{}) {
			each[i].Add(e.charged[n.kind])
			e.charged[n.kind] = each[i]
		}
	}
	s.spent.Rest(n.kind, idle)
	n.since = s.at
}

// divide returns, for the time of a node until a given time, what each holder must be charged, and
// the idle rest. A reservation is also charged for the shares of the jobs within it.
func (n *clusterNode) divide(until time.Time) (holders []*entry, each []charge.Time, idle charge.Time) {
	var shares []charge.Share
	for _, e := range n.holders {
		if e.queue.reservation != nil {
			continue
		}
		held := e.held[n.facts.Name]
		share := charge.Share{GPUs: len(held.GPUs)}
		if e.Job.Request.CPUs > 0 {
			share.CPUs = held.CPUs
		}
		holders, shares = append(holders, e), append(shares, share)
	}
	each, idle = charge.Node{GPUs: len(n.facts.GPUs), CPUs: n.facts.CPUs, Since: n.since}.Divide(until, shares)
	return holders, each, idle
}

// release takes all nodes from a job that has ended.
func (s *State) release(e *entry) {
	for _, name := range sorted(e.held) {
		s.drop(e, s.nodes[name])
	}
	e.queue.mark(s, true)
}

// forget takes a node out of the cluster.
func (s *State) forget(n *clusterNode) {
	s.charge(n)
	n.drained = true
	s.refresh(n)
	delete(s.nodes, n.facts.Name)
}

// refresh counts the free resources of a node again.
func (s *State) refresh(n *clusterNode) {
	s.free -= n.freeGPUs
	if n.counts {
		s.usable--
	}
	n.free = n.offer(n.facts, nil, 1, nil)
	n.freeGPUs, n.counts = 0, !n.drained
	if !n.counts {
		return
	}
	s.usable++
	n.freeGPUs = job.FreeGPUs(n.free)
	s.free += n.freeGPUs
}

// offer is the part of a node, or of a reservation's share of a node, that the jobs there leave
// free. The jobs in except count as if they held nothing. Up to sharing jobs may hold one GPU. Jobs
// that take turns on GPUs take turns on CPUs too.
func (n *clusterNode) offer(whole placement.Node, reservation *entry, sharing int, except map[*entry]bool) placement.Node {
	left := whole
	left.GPUs = slices.Clone(whole.GPUs)
	times := reservation.colocated()
	cpus, memory := whole.CPUs*times, whole.Memory*int64(times)
	users := make([]int, len(left.GPUs))
	for _, e := range n.holders {
		if e.queue.reservation != reservation || except[e] {
			continue
		}
		share, r := e.held[whole.Name], e.Job.Request
		if r.CPUs > 0 {
			cpus -= share.CPUs
		}
		if r.Memory > 0 {
			memory -= share.Memory
		}
		for i := range left.GPUs {
			if has(share.GPUs, left.GPUs[i].Index) {
				if users[i]++; users[i] == sharing {
					left.GPUs[i].HeldBy = e.label()
				}
			}
		}
	}
	left.CPUs, left.Memory = remaining(whole.CPUs, cpus), remaining(whole.Memory, memory)
	return left
}

// remaining returns the rest of an amount as package placement expects it: 0 means unknown, and
// less than 0 means that nothing is left.
func remaining[T int | int64](whole, left T) T {
	switch {
	case whole == 0:
		return 0
	case left <= 0:
		return -1
	}
	return left
}

// usedBy is the part of a node that a placement group of a job uses.
func (s *State) usedBy(e *entry, g placement.Group) placement.Node {
	n, r := s.nodes[g.Node.Name].facts, e.Job.Request
	n.GPUs = nil
	for _, b := range g.Bundles {
		if b.GPU != nil && !has(n.GPUs, b.GPU.Index) {
			n.GPUs = append(n.GPUs, *b.GPU)
		}
	}
	if r.CPUs > 0 && n.CPUs != 0 {
		n.CPUs = r.CPUs * len(g.Bundles)
	}
	if r.Memory > 0 && n.Memory != 0 {
		n.Memory = r.Memory * int64(len(g.Bundles))
	}
	return n
}

func has(gpus []placement.GPU, index int) bool {
	return slices.ContainsFunc(gpus, func(g placement.GPU) bool { return g.Index == index })
}

// colocated is how many jobs may hold one GPU of a reservation at a time. A nil entry stands for
// the cluster.
func (e *entry) colocated() int {
	if e == nil {
		return 1
	}
	return max(1, e.Colocated)
}
