package rendezvous

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// refusal returns why an agent is not admitted. It returns nil if the agent is admitted.
func (c *Coordinator) refusal(h *pb.Hello, from string) error {
	node := wire.ToNode(h.GetNode())
	old, renames := c.members[node.Name], node.Labels[wire.RenamesLabel]
	own := old == nil && c.cfg.LocalNode.named(node.Name) && !c.cfg.LocalNode.is(h.GetInstance())
	if own { // this process's own node is about to join
		old = &member{addr: c.cfg.LocalNode.node.Addr, machine: c.cfg.LocalNode.node.Labels[placement.MachineLabel]}
	}
	switch why := wire.Different(c.cfg.Facts, h.GetFacts()); {
	case h.GetProtocol() != wire.Protocol:
		return wire.Refused("golaunch %s here and %s on the coordinator do not understand each other; install the same on both",
			h.GetVersion(), version.String())
	case !wire.ValidName(node.Name):
		return wire.Refused("%q is no node name; use letters, digits, dots, dashes and underscores, %d at most", node.Name, wire.MaxName)
	case from != "" && from != node.Name:
		return wire.Refused("node %s shows a certificate of node %s", node.Name, from)
	case why != "":
		return wire.Refused("%s", why)
	case wire.ExcessOfNode(h.GetNode()) != "":
		return wire.Refused("node %s: %s", node.Name, wire.ExcessOfNode(h.GetNode()))
	case !node.Addr.IsValid() || node.Addr.IsUnspecified() || node.Addr.IsMulticast():
		return wire.Refused("node %s has no address that others could reach (%q); set --address", node.Name, h.GetNode().GetAddr())
	case old != nil && old.fenced == "" && old.instance == h.GetInstance():
		return nil
	case h.GetEpoch() != "" && h.GetEpoch() != c.state.Epoch:
		return status.Error(codes.NotFound, fmt.Sprintf("node %s had joined another coordinator", node.Name))
	case h.GetEpoch() != "":
		// Another agent may have taken this agent's place, so the lease of this agent must not be
		// renewed.
		return wire.Refused("node %s was counted as lost", node.Name)
	case old != nil && !own && (old.stream == nil || time.Since(old.LastHeard()) > c.cfg.Lease/2):
		// The machine of the earlier agent may have been replaced.
		return status.Error(codes.Unavailable, fmt.Sprintf("an earlier agent of node %s is silent, and its ranks may still run there, for %v at most", node.Name, old.Patience))
	case old != nil && old.addr == node.Addr && old.machine != node.Labels[placement.MachineLabel]:
		return wire.Refused("another machine is node %s already, at %v too; give each node its own --name, and the address at which the others reach it "+
			"(--address or --interface)", node.Name, old.addr)
	case old != nil && c.onlyJob != nil && renames == "":
		return wire.Refused("there is a node %s already, at %v; give each node its own --name (under torchrun its own --node-rank)", node.Name, old.addr)
	case old != nil && old.addr == node.Addr && renames != wire.RenamesAlways:
		return wire.Refused("there is a node %s already, at %v; give each node its own --name", node.Name, old.addr)
	case old != nil: // the agent may try again under another name
		return status.Error(codes.AlreadyExists, wire.Plain(fmt.Sprintf("there is a node %s already, at %v; give each node its own --name", node.Name, old.addr)))
	}
	if why := c.state.Capacity.Refuses(c.state.Epoch, node.Name, node.Labels[capacity.TagLabel]); why != "" {
		return wire.Refused("node %s comes for request %s, which needs no node: %s", node.Name, node.Labels[capacity.TagLabel], why)
	}
	sharedAddr := c.onlyJob != nil && c.onlyJob.Job.Request.SharedAddr
	if twin := c.members[c.byAddr[node.Addr]]; twin != nil && !sharedAddr && !twin.shares(node) {
		return wire.Refused("address %v is node %s's too; give each node the address at which the others reach it (--address or --interface)",
			node.Addr, twin.name)
	}
	return nil
}

// LocalNode is the node of the coordinator's own process. The coordinator reserves the node's name,
// because the job could not continue without the local node: another node with that name is refused
// even if it comes first.
type LocalNode struct {
	node     placement.Node
	instance atomic.Pointer[string]
}

// NewLocalNode returns the LocalNode of a node. The session of the node's agent calls Began.
func NewLocalNode(node placement.Node) *LocalNode { return &LocalNode{node: node} }

// Began stores the instance of the agent's session. It distinguishes this session from the sessions
// of other processes.
func (o *LocalNode) Began(instance string) { o.instance.Store(&instance) }

func (o *LocalNode) named(name string) bool { return o != nil && o.node.Name == name }

func (o *LocalNode) is(instance string) bool {
	its := o.instance.Load()
	return its != nil && *its == instance
}

// endIfTooFew handles the refusal of a node. It ends a job that still waits for nodes if too few
// remain, or if the refused node was started with different options. The end tells the other nodes
// why they would wait in vain. A job that has its nodes continues.
func (c *Coordinator) endIfTooFew(h *pb.Hello, err error) {
	switch {
	case c.onlyJob == nil || c.onlyJob.Result != nil || len(c.everJoined) >= c.onlyJob.Job.Request.MinNodes:
		return
	case status.Code(err) != codes.FailedPrecondition || h.GetEpoch() != "": // the agent may try again
		return
	}
	name, least := h.GetNode().GetName(), c.onlyJob.Job.Request.MinNodes
	why := wire.DifferentAt("on "+name, c.cfg.Facts, h.GetFacts())
	if c.cfg.Nodes > 0 {
		c.refused[name] = true
	}
	switch {
	case why != "":
		why += "; start the same command on every node"
	case c.cfg.Nodes == 0 || c.cfg.Nodes-len(c.refused) >= least:
		return
	default:
		why = fmt.Sprintf("node %s was refused, and without it %d nodes cannot come together: %s", name, least, status.Convert(err).Message())
	}
	c.tooFewNodes = true
	c.applyJobEvent(c.onlyJob, job.Cancel{Code: 2, Ending: report.EndProgram, Why: wire.Plain(why)})
}

// maxSkew is how far apart two clocks may be before the coordinator warns. With a larger
// difference, people can hardly compare the logs of the nodes.
const maxSkew = time.Minute

func (c *Coordinator) compareClocks(node string, theirs time.Time) {
	skew, side := time.Until(theirs).Round(time.Second), "ahead of"
	if skew < 0 {
		skew, side = -skew, "behind"
	}
	if skew > maxSkew {
		c.warn(fmt.Errorf("the clock of node %s is %v %s the coordinator's; is NTP running there?", node, skew, side))
	}
}
