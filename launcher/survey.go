package launcher

import (
	"context"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Surroundings are the environment that the first rank on this machine would get, and the network
// that decides about it.
type Surroundings struct {
	Node placement.Node
	// Network is this node's, and Why says how golaunch knows. It has versions without EFA too.
	Network nccl.Facts
	Why     string
	NICs    []nccl.NIC
	Env     rankenv.Env
}

// Survey looks at this machine as a node of the job, as if the other nodes were alike. Without a
// coordinator, its address is the one that the job gives it, or its first, and it has rank 0.
func (j Job) Survey(ctx context.Context) (Surroundings, error) {
	j, err := j.complete()
	if err != nil {
		return Surroundings{}, err
	}
	var s Surroundings
	if s.Node, err = j.thisNode(ctx); err != nil {
		return s, err
	}
	if !s.Node.Addr.IsValid() {
		s.Node.Addr = address.Loopback(0)
		if len(s.Node.Others) > 0 {
			s.Node.Addr = s.Node.Others[0]
		}
	}
	if s.Network, s.Why, err = network(s.Node.Addr); err != nil {
		return s, err
	}
	root := os.DirFS("/")
	s.Network.Versions = nccl.ReadVersions(root)
	s.NICs = nccl.NICs(os.DirFS("/sys"), openDevice)
	s.Env, err = j.first(s.Node)
	return s, err
}

// first is the environment of the first rank if this machine is node 0.
func (j Job) first(node placement.Node) (rankenv.Env, error) {
	nodes := []placement.Node{node}
	order := []string{node.Name}
	for i := 1; i < j.Resources.MaxNodes; i++ {
		other := j.declared(i)
		other.GPUs, other.Addr = node.GPUs, netip.AddrFrom4([4]byte{0, byte(i >> 16), byte(i >> 8), byte(i)})
		nodes, order = append(nodes, other), append(order, other.Name)
	}
	request := j.Resources.request()
	request.Order = placement.Order{By: placement.ByList, List: order}
	plan, err := placement.Solve(request, nodes)
	if err != nil {
		return rankenv.Env{}, err
	}
	g := plan.Groups[0]
	facts := j.about(plan, g, g.Bundles[0])
	j.bind(&facts, g.Bundles)
	if facts.GPU != nil {
		if facts.RASAddr, err = agent.RASAddr(); err != nil {
			return rankenv.Env{}, err
		}
	}
	return j.with(facts, node.Addr)
}
