package placement

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
)

// candidate is a node, with its values for one request.
type candidate struct {
	node *Node
	// addr is the node's address. An IPv4-mapped IPv6 address becomes IPv4.
	addr netip.Addr
	// listed is true if the order has a place for the node. Only with ByList may a node have no
	// place.
	listed bool
	// place is the node's place in Order.List or, once the candidates are sorted, among the
	// candidates.
	place int
	// levels are the names in the node's TopologyLabel, for ByTopology.
	levels []string
	// former is the node rank that the node had before, or newcomer.
	former int
	// gpus counts the free GPUs.
	gpus int
	// free and total are the numbers of shares of the request for which the node has room, now and
	// if all its GPUs were free. A share is a bundle or, with AllGPUs, the whole node.
	free, total int
	// take is the number of bundles that the node gets. score says how good the node is for one
	// more bundle.
	take  int
	score float64
	// seated is true if the node has its former rank again.
	seated bool
}

const newcomer = math.MaxInt

// candidates returns all nodes in the order of preference: kept nodes by former rank, then the
// others by Order.
func (r Request) candidates(nodes []Node) ([]*candidate, error) {
	places := make(map[string]int, len(r.Order.List))
	for i, name := range r.Order.List {
		places[name] = i
	}
	all := make([]candidate, len(nodes))
	sorted := make([]*candidate, len(nodes))
	for i := range nodes {
		c := &all[i]
		*c = candidate{node: &nodes[i], addr: nodes[i].Addr.Unmap(), listed: r.Order.By != ByList, former: newcomer}
		if place, ok := places[c.node.Name]; ok {
			c.place, c.listed = place, true
		}
		if rank, ok := r.Keep[c.node.Name]; ok {
			c.former = rank
		}
		if r.Order.By == ByTopology {
			c.levels = levels(c.node)
		}
		r.measure(c)
		sorted[i] = c
	}
	slices.SortFunc(sorted, func(a, b *candidate) int {
		if d := cmp.Compare(a.former, b.former); d != 0 {
			return d
		}
		return r.Order.compare(a, b)
	})
	for i, c := range sorted {
		c.place = i
	}
	return sorted, r.distinct(sorted)
}

// distinct refuses two nodes with one name and two machines with one address, because a plan would
// be ambiguous.
func (r Request) distinct(sorted []*candidate) error {
	names := make(map[string]*candidate, len(sorted))
	addrs := make(map[netip.Addr]*candidate, len(sorted))
	for _, c := range sorted {
		if twin := names[c.node.Name]; twin != nil {
			return fmt.Errorf("two nodes are named %s, at %v and at %v; give each a name of its own", c.node.Name, twin.addr, c.addr)
		}
		names[c.node.Name] = c
		if !c.addr.IsValid() || r.SharedAddr {
			continue
		}
		if twin := addrs[c.addr]; twin != nil && !SameMachine(*twin.node, *c.node) {
			return fmt.Errorf("nodes %s and %s have one address, %v; give each the address at which the others reach it",
				twin.node.Name, c.node.Name, c.addr)
		}
		addrs[c.addr] = c
	}
	return nil
}

func (c *candidate) now() int  { return c.free }
func (c *candidate) ever() int { return c.total }

// measure sets gpus, free and total.
func (r Request) measure(c *candidate) {
	for i := range c.node.GPUs {
		if c.node.GPUs[i].HeldBy == "" {
			c.gpus++
		}
	}
	if c.listed {
		c.free, c.total = r.room(c.node, c.gpus), r.room(c.node, len(c.node.GPUs))
	}
}

// room returns how many shares fit on a node with the given number of free GPUs.
func (r Request) room(n *Node, gpus int) int {
	if n.Labels[UnfitLabel] != "" {
		return 0
	}
	room := maxPerNode
	if r.GPU {
		room = min(room, r.Fits(gpus))
	}
	if r.CPUs > 0 && n.CPUs != 0 {
		room = max(0, min(room, n.CPUs/r.CPUs))
	}
	if r.Memory > 0 && n.Memory != 0 {
		room = int(max(0, min(int64(room), n.Memory/r.Memory)))
	}
	if !r.allGPUs() {
		return room
	}
	if want := r.whole(n); want == 0 || room < want {
		return 0
	}
	return 1
}

// whole returns how many bundles the node gets if a job asks for whole nodes; 0 if it gets none.
func (r Request) whole(n *Node) int {
	if text, ok := n.Labels[SlotsLabel]; ok {
		slots, err := strconv.Atoi(text)
		if err != nil || slots < 0 || slots > maxPerNode {
			return 0
		}
		return slots
	}
	if r.GPU {
		return r.Fits(len(n.GPUs))
	}
	return 0
}
