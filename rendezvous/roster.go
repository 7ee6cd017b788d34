package rendezvous

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// roster is the coordinator's list of agents.
type roster struct {
	members map[string]*member
	// byAddr has the name of one node at each address.
	byAddr map[netip.Addr]string
	// everJoined are nodes that have been members of the only job under this coordinator. refused
	// are nodes that this coordinator has refused and not admitted later. tooFewNodes says that the
	// job ended because of refusals.
	everJoined, refused map[string]bool
	tooFewNodes         bool
	// allNodesKnown says that the only job does not have to wait for more of its nodes.
	allNodesKnown bool
	// restored says that an earlier coordinator has admitted agents.
	restored bool
}

func newRoster(allNodesKnown bool) roster {
	return roster{
		members: map[string]*member{}, byAddr: map[netip.Addr]string{},
		everJoined: map[string]bool{}, refused: map[string]bool{}, allNodesKnown: allNodesKnown,
	}
}

func (r *roster) member(node string) (*member, error) {
	if m := r.members[node]; m != nil {
		return m, nil
	}
	return nil, status.Error(codes.NotFound, wire.Plain(fmt.Sprintf("there is no node %q here; golaunch status lists them", node)))
}

func (r *roster) add(m *member) { r.members[m.name], r.byAddr[m.addr] = m, m.name }

// remove removes an agent. If another agent of the same machine shares the address, byAddr names
// that agent from then on.
func (r *roster) remove(m *member) {
	delete(r.members, m.name)
	if r.byAddr[m.addr] != m.name {
		return
	}
	delete(r.byAddr, m.addr)
	if m.machine == "" {
		return
	}
	for name, other := range r.members {
		if other.addr == m.addr {
			r.byAddr[m.addr] = name
			return
		}
	}
}

// nodeCameIn checks whether all nodes that the only job waits for have joined.
func (c *Coordinator) nodeCameIn() {
	switch n := len(c.members); {
	case c.allNodesKnown:
	case n >= c.cfg.AllNodes:
		c.activateAll()
	case n == c.onlyJob.Job.Request.MinNodes:
		c.say(fmt.Sprintf("%d of %d nodes are here, which is enough; but ranks of an earlier start may still run on the others, which have %v to join",
			n, c.cfg.AllNodes, time.Until(c.started.Add(c.patience())).Round(time.Second)))
	}
}

// activateAll ends the wait for all nodes of the job, and activates the nodes that have joined.
func (c *Coordinator) activateAll() {
	if c.allNodesKnown {
		return
	}
	c.allNodesKnown = true
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		c.activate(c.members[name])
	}
}

// activate lets jobs use a node, once its agent has reported which attempts it runs and the
// coordinator knows all of them.
func (c *Coordinator) activate(m *member) {
	if m.inactive && m.restated && len(m.unknown) == 0 && c.allNodesKnown {
		m.inactive = false
		c.applyEvent(cluster.Joined{Node: c.state.Members[m.name].Node})
	}
}

// shares reports whether a node is on the machine of a member. Only then may both have the same
// address.
func (m *member) shares(n placement.Node) bool {
	return m.machine != "" && m.machine == n.Labels[placement.MachineLabel]
}
