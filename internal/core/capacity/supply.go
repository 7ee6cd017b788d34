package capacity

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// supply has the nodes that jobs can have: free shares of present nodes, and requested nodes. Nodes
// are alike if no request can tell them apart. Of many alike nodes, solve usually tries only as
// many as a request can use.
type supply struct {
	buckets map[shape]*bucket
	order   []*bucket
	byName  map[string]*node
	made    int
}

// shape has the properties that alike nodes share.
type shape struct {
	gpus, free         int
	cpus               int
	memory             int64
	slots, unfit, role string
}

// bucket has nodes that are alike, in the order in which they were added.
type bucket struct {
	shape shape
	nodes []*node
}

type node struct {
	placement.Node
	tag    string
	seq    int
	bucket *bucket
	// own says that GPUs is the node's own copy, which take may change.
	own bool
}

func newSupply() *supply { return &supply{buckets: map[shape]*bucket{}, byName: map[string]*node{}} }

// add adds a node. Its address has no meaning here, but must be unique.
func (s *supply) add(n placement.Node, name, tag string) *node {
	s.made++
	n.Name, n.Others = name, nil
	n.Addr = netip.AddrFrom4([4]byte{10, byte(s.made >> 16), byte(s.made >> 8), byte(s.made)})
	added := &node{Node: n, tag: tag, seq: s.made}
	s.byName[name] = added
	s.file(added)
	return added
}

func (s *supply) drop(n *node) {
	delete(s.byName, n.Name)
	n.unfile()
}

func (n *node) unfile() {
	i, _ := slices.BinarySearchFunc(n.bucket.nodes, n, bySeq)
	n.bucket.nodes = slices.Delete(n.bucket.nodes, i, i+1)
}

func bySeq(a, b *node) int { return cmp.Compare(a.seq, b.seq) }

// file puts a node into the bucket of the nodes that are like it.
func (s *supply) file(n *node) {
	sh := shape{
		gpus: len(n.GPUs), free: job.FreeGPUs(n.Node), cpus: n.CPUs, memory: n.Memory,
		slots: n.Labels[placement.SlotsLabel], unfit: n.Labels[placement.UnfitLabel], role: n.Labels[placement.RoleLabel],
	}
	b := s.buckets[sh]
	if b == nil {
		b = &bucket{shape: sh}
		s.buckets[sh] = b
		s.order = append(s.order, b)
	}
	i, _ := slices.BinarySearchFunc(b.nodes, n, bySeq)
	b.nodes, n.bucket = slices.Insert(b.nodes, i, n), b
}

// solve plans a demand. If there are too few nodes, it does not call Solve, which would find a
// reason for each node, and would take longer than it takes to find a plan.
func (s *supply) solve(d cluster.Demand) (placement.Plan, bool) {
	all := s.candidates(d)
	if packs(d.Request) && len(all) < d.Request.MinNodes {
		return placement.Plan{}, false
	}
	plan, err := placement.Solve(d.Request, all)
	return plan, err == nil
}

// packs reports whether a request needs a separate node for each placement group.
func packs(r placement.Request) bool { return r.Strategy == placement.StrictPack || r.Strategy == "" }

// candidates are enough of the nodes: if all nodes together allow a plan for a demand, the
// candidates also do.
func (s *supply) candidates(d cluster.Demand) []placement.Node {
	list := slices.Clone(d.Holds)
	for i := range list {
		s.made++ // a unique address
		list[i].Addr = netip.AddrFrom4([4]byte{11, byte(s.made >> 16), byte(s.made >> 8), byte(s.made)})
	}
	limit, least := most(d.Request), 1
	if packs(d.Request) {
		least = max(1, slices.Min(d.Request.PerNode))
	}
	special := d.GPUs != nil || d.Request.Order.By == placement.ByList
	for _, b := range s.order {
		taken := 0
		if d.Request.GPU && d.Request.Fits(b.shape.free) < least {
			continue
		}
		for _, n := range b.nodes {
			if !special && taken == limit {
				break
			}
			if d.Not[n.Name] || holds(d, n.Name) {
				continue
			}
			taken++
			list = append(list, only(n.Node, d.GPUs))
		}
	}
	return list
}

func holds(d cluster.Demand, name string) bool {
	return slices.ContainsFunc(d.Holds, func(n placement.Node) bool { return n.Name == name })
}

// only removes the GPUs that a job may not have.
func only(n placement.Node, gpus []int) placement.Node {
	if gpus != nil {
		n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool { return !slices.Contains(gpus, g.Index) })
	}
	return n
}

// most is the largest number of nodes that a request can use.
func most(r placement.Request) int {
	if packs(r) || r.PerNode[0] == placement.AllGPUs {
		return r.MaxNodes
	}
	if len(r.PerNode) == 1 {
		return r.MaxNodes * r.PerNode[0]
	}
	sum := 0
	for _, n := range r.PerNode {
		sum += n
	}
	return sum
}

// take removes the resources that a plan uses.
func (s *supply) take(d cluster.Demand, p placement.Plan, needs func(tag string)) {
	for _, g := range p.Groups {
		n := s.byName[g.Node.Name]
		if n == nil || holds(d, n.Name) {
			continue
		}
		if n.tag != "" {
			needs(n.tag)
		}
		n.unfile()
		n.take(d.Request, g)
		s.file(n)
	}
}

func (n *node) take(r placement.Request, g placement.Group) {
	if !n.own && r.GPU {
		n.GPUs, n.own = slices.Clone(n.GPUs), true
	}
	for _, b := range g.Bundles {
		if b.GPU == nil {
			continue
		}
		for i := range n.GPUs {
			if n.GPUs[i].Index == b.GPU.Index {
				n.GPUs[i].HeldBy = "a job in the queue"
			}
		}
	}
	n.CPUs = remaining(n.CPUs, r.CPUs*len(g.Bundles))
	n.Memory = remaining(n.Memory, r.Memory*int64(len(g.Bundles)))
}

// remaining returns an amount as package placement expects it: 0 means unknown, and less than 0
// means none.
func remaining[T int | int64](has, less T) T {
	switch {
	case has == 0 || less == 0:
		return has
	case has <= less:
		return -1
	}
	return has - less
}

// alike is a key. Equal demands have the same key.
type alike struct {
	nodes, per, cpus, perGPU int
	gpu                      bool
	memory                   int64
	strategy                 placement.Strategy
	other                    string
}

func keyOf(d cluster.Demand) alike {
	r := d.Request
	k := alike{nodes: r.MinNodes, per: r.PerNode[0], cpus: r.CPUs, gpu: r.GPU, perGPU: r.PerGPU, memory: r.Memory, strategy: r.Strategy}
	if len(r.PerNode) > 1 || d.GPUs != nil || r.Order.By == placement.ByList || len(d.Holds)+len(d.Not) > 0 {
		k.other = fmt.Sprintf("%v %v %v %v %v", r.PerNode, d.GPUs, r.Order, d.Holds, d.Not)
	}
	return k
}
