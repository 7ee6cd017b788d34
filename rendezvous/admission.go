package rendezvous

import (
	"cmp"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// protocol changes when an older agent or coordinator could misunderstand a newer one.
const protocol = 4

// refused is the error with which a stream ends that the agent must not open again.
func refused(format string, args ...any) error {
	return status.Error(codes.FailedPrecondition, plain(fmt.Sprintf(format, args...)))
}

// refusal says why an agent cannot be taken in.
func (c *Coordinator) refusal(h *pb.Hello, from string) error {
	node := toNode(h.GetNode())
	old := c.members[node.Name]
	switch why := different(c.cfg.Facts, h.GetFacts()); {
	case h.GetProtocol() != protocol:
		return refused("golaunch %s here and %s on the coordinator do not understand each other; install the same on both",
			h.GetVersion(), version())
	case !ValidName(node.Name):
		return refused("%q is no node name; use letters, digits, dots, dashes and underscores, 253 at most", node.Name)
	case from != "" && from != node.Name:
		return refused("node %s shows a certificate of node %s", node.Name, from)
	case why != "":
		return refused("%s", why)
	case excessOfNode(h.GetNode()) != "":
		return refused("node %s: %s", node.Name, excessOfNode(h.GetNode()))
	case !node.Addr.IsValid() || node.Addr.IsUnspecified() || node.Addr.IsMulticast():
		return refused("node %s has no address that others could reach (%q); set --address", node.Name, h.GetNode().GetAddr())
	case old != nil && old.fenced == "" && old.instance == h.GetInstance():
		return nil
	case h.GetEpoch() != "" && h.GetEpoch() != c.state.Epoch:
		return status.Error(codes.NotFound, fmt.Sprintf("this is another coordinator than the one that node %s had joined", node.Name))
	case h.GetEpoch() != "": // its place may be given away, so that its lease must not be renewed
		return refused("node %s was counted as lost", node.Name)
	case old != nil && (old.link == nil || time.Since(old.heard) > c.cfg.Lease/2): // its machine may have been replaced
		return status.Error(codes.Unavailable, fmt.Sprintf("an earlier agent of node %s is silent, and ranks of it may still live there, for %v at most", node.Name, c.patience()))
	case old != nil:
		return refused("there is a node %s already, at %v; give each node its own --name", node.Name, old.addr)
	case c.addrs[node.Addr] != "" && !c.sharedAddr():
		return refused("address %v is node %s's; give each node its own --address", node.Addr, c.addrs[node.Addr])
	}
	return nil
}

// sharedAddr says that several nodes may have one address.
func (c *Coordinator) sharedAddr() bool { return c.sole != nil && c.sole.Job.Request.SharedAddr }

// different names the first fact that is not the same on both sides. An agent without facts goes along with any job.
func different(coordinator, agent map[string]string) string {
	if len(agent) == 0 {
		return ""
	}
	all := maps.Clone(agent)
	maps.Copy(all, coordinator)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a, b := agent[name], coordinator[name]; a != b {
			return fmt.Sprintf("%s differs: %s here, %s on the coordinator", name, cmp.Or(a, "unset"), cmp.Or(b, "unset"))
		}
	}
	return ""
}

// ValidName says what a node or a job may be called, which is harmless in paths, terminals and environment variables: letters,
// digits, '.', '_' and '-', 253 at most, and no '.' or '-' first.
func ValidName(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_", r))
	}
	return s != "" && len(s) <= 253 && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, odd)
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return info.Main.Version
}
