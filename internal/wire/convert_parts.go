package wire

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func FromNode(n placement.Node) *pb.Node {
	return &pb.Node{
		Name: n.Name, Addr: n.Addr.String(), Gpus: Convert(n.GPUs, fromGPU), Cpus: int64(n.CPUs), Memory: n.Memory,
		Labels: n.Labels, Others: Convert(n.Others, netip.Addr.AsSlice),
	}
}

func fromPeers(peers []netip.Addr) [][]byte { return Convert(peers, netip.Addr.AsSlice) }

// ahead splits peers that are too many for one message. It returns messages with the first peers,
// and the rest, for the order itself.
func ahead(id string, peers []netip.Addr) (msgs []*pb.ToAgent, rest []netip.Addr) {
	for ; len(peers) > MaxPeers; peers = peers[MaxPeers:] {
		msgs = append(msgs, &pb.ToAgent{Job: id, Body: &pb.ToAgent_Peers{Peers: &pb.Peers{Addrs: fromPeers(peers[:MaxPeers])}}})
	}
	return msgs, peers
}

// Gather collects peers from the messages before an order. Given the order, it returns the order
// with all its peers. Given another message, it returns the peers so far.
func Gather(before []netip.Addr, m *pb.ToAgent, do any) (peers []netip.Addr, whole any) {
	switch o := do.(type) {
	case job.Prepare:
		o.Peers = append(before, o.Peers...)
		return nil, o
	case job.Admit:
		o.Peers = append(before, o.Peers...)
		return nil, o
	}
	for _, addr := range m.GetPeers().GetAddrs() {
		before = append(before, toAddr(addr))
	}
	return before, do
}

// toAddr converts an address. It returns the zero Addr for other bytes.
func toAddr(b []byte) netip.Addr {
	addr, _ := netip.AddrFromSlice(b)
	return addr.Unmap()
}

// toIP parses an address. It returns the zero Addr for other text.
func toIP(text string) netip.Addr {
	addr, _ := netip.ParseAddr(text)
	return addr.Unmap()
}

// ToNode leaves Addr zero if the message has no valid address.
func ToNode(n *pb.Node) placement.Node {
	return placement.Node{
		Name: n.GetName(), Addr: toIP(n.GetAddr()), GPUs: Convert(n.GetGpus(), toGPU), CPUs: int(n.GetCpus()),
		Memory: n.GetMemory(), Labels: n.GetLabels(), Others: Convert(n.GetOthers(), toAddr),
	}
}

func fromGPU(g placement.GPU) *pb.GPU {
	return &pb.GPU{Index: int32(g.Index), Uuid: g.UUID, HeldBy: Plain(g.HeldBy)}
}

func fromReportGPU(g report.GPU) *pb.GPU {
	return &pb.GPU{Index: int32(g.Index), Uuid: g.UUID, HeldBy: Plain(g.HeldBy)}
}

func toReportGPU(g *pb.GPU) report.GPU {
	return report.GPU{Index: int(g.GetIndex()), UUID: g.GetUuid(), HeldBy: g.GetHeldBy()}
}

func toGPU(g *pb.GPU) placement.GPU {
	return placement.GPU{Index: int(g.GetIndex()), UUID: g.GetUuid(), HeldBy: g.GetHeldBy()}
}

func fromBundle(b placement.Bundle) *pb.Bundle {
	return &pb.Bundle{Rank: int32(b.Rank), LocalRank: int32(b.LocalRank), Gpu: optional(b.GPU, fromGPU)}
}

func toBundle(b *pb.Bundle) placement.Bundle {
	return placement.Bundle{Rank: int(b.GetRank()), LocalRank: int(b.GetLocalRank()), GPU: present(b.GetGpu(), toGPU)}
}

func fromWorld(w job.World) *pb.World {
	return &pb.World{
		WorldSize: int32(w.WorldSize), Nodes: int32(w.Nodes), MasterAddr: w.MasterAddr,
		MasterPort: int32(w.MasterPort), Uniform: int32(w.Uniform), MaxRestarts: int32(w.MaxRestarts),
		LocalSize: int32(w.LocalSize), Gpus: Convert(w.GPUs, fromGPU), Network: Plain(w.Network),
		RoleSize: int32(w.RoleSize), RoleFirst: int32(w.RoleFirst),
		Groups: int32(w.Groups), Group: int32(w.Group), FirstRank: int32(w.FirstRank), FirstNode: int32(w.FirstNode),
	}
}

func toWorld(w *pb.World) job.World {
	return job.World{
		WorldSize: int(w.GetWorldSize()), Nodes: int(w.GetNodes()), MasterAddr: w.GetMasterAddr(),
		MasterPort: int(w.GetMasterPort()), Uniform: int(w.GetUniform()), MaxRestarts: int(w.GetMaxRestarts()),
		LocalSize: int(w.GetLocalSize()), GPUs: Convert(w.GetGpus(), toGPU), Network: w.GetNetwork(),
		RoleSize: int(w.GetRoleSize()), RoleFirst: int(w.GetRoleFirst()),
		Groups: int(w.GetGroups()), Group: int(w.GetGroup()), FirstRank: int(w.GetFirstRank()), FirstNode: int(w.GetFirstNode()),
	}
}

// fromTime and toTime keep the zero time zero.
func fromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func toTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Convert converts each element of a list. A nil list stays nil.
func Convert[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

func toInt32(n int) int32 { return int32(n) }

func toInt(n int32) int { return int(n) }

// optional converts a value that may be absent into a message, and present converts a message back.
func optional[A, B any](p *A, f func(A) *B) *B {
	if p == nil {
		return nil
	}
	return f(*p)
}

func present[A, B any](m *A, f func(*A) B) *B {
	if m == nil {
		return nil
	}
	return new(f(m))
}

// FromVoter converts a voter; nil for no voter.
func FromVoter(v quorum.Voter) *pb.Voter {
	if v == (quorum.Voter{}) {
		return nil
	}
	return &pb.Voter{Id: v.ID, Name: v.Name, Addr: v.Addr}
}

func ToVoter(v *pb.Voter) quorum.Voter {
	return quorum.Voter{ID: v.GetId(), Name: v.GetName(), Addr: v.GetAddr()}
}

// FromWorkspace converts a workspace into a message; nil for none.
func FromWorkspace(w report.Workspace) *pb.Workspace {
	if w.ID == "" {
		return nil
	}
	return &pb.Workspace{Id: w.ID, Bytes: w.Bytes, Files: int32(w.Files)}
}

// ToWorkspace converts a message, which may be nil, into a workspace.
func ToWorkspace(m *pb.Workspace) report.Workspace {
	return report.Workspace{ID: m.GetId(), Bytes: m.GetBytes(), Files: int(m.GetFiles())}
}
