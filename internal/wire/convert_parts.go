package wire

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/job"
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

func fromResult(r report.Result) *pb.Result {
	return &pb.Result{
		Code: int32(r.Code), Ending: string(r.Ending), Reason: Plain(r.Reason), Cause: optional(r.Cause, fromFailure),
		Attempts: int32(r.Attempts), Restarts: int32(r.Restarts), Goodput: optional(r.Goodput, fromGoodput),
		Start: optional(r.Start, fromStart), Saves: optional(r.Saves, fromSaves),
	}
}

func ToResult(r *pb.Result) report.Result {
	return report.Result{
		Code: int(r.GetCode()), Ending: report.Ending(r.GetEnding()), Reason: r.GetReason(), Cause: present(r.GetCause(), toFailure),
		Attempts: int(r.GetAttempts()), Restarts: int(r.GetRestarts()), Goodput: present(r.GetGoodput(), toGoodput),
		Start: present(r.GetStart(), toStart), Saves: present(r.GetSaves(), toSaves),
	}
}

func fromFailure(f report.Failure) *pb.Failure {
	return &pb.Failure{
		Node: f.Node, Rank: int32(f.Rank), Gpu: optional(f.GPU, fromReportGPU), Attempt: int32(f.Attempt),
		Exit: fromExit(f.Exit), At: fromTime(f.At), Lived: durationpb.New(f.Lived), Further: int32(f.Further), Step: f.Step, Kernel: []byte(tail(f.Kernel)),
		Why: Plain(f.Why), Tail: []byte(tail(f.Tail)), Traceback: []byte(tail(f.Traceback)), Hung: f.Hung,
		Verdict: fromVerdict(f.Verdict),
	}
}

func fromVerdict(v report.Verdict) *pb.Verdict {
	if v == (report.Verdict{}) {
		return nil
	}
	return &pb.Verdict{
		Action: string(v.Action), Cause: line(v.Cause, MaxLine), Title: Plain(v.Title), Quote: Plain(v.Quote), From: string(v.From),
		Line: int32(v.Line), Victim: v.Victim, Remedy: Plain(v.Remedy),
	}
}

func toVerdict(v *pb.Verdict) report.Verdict {
	return report.Verdict{
		Action: report.Action(v.GetAction()), Cause: v.GetCause(), Title: v.GetTitle(), Quote: v.GetQuote(), From: report.Source(v.GetFrom()),
		Line: int(v.GetLine()), Victim: v.GetVictim(), Remedy: v.GetRemedy(),
	}
}

func toFailure(f *pb.Failure) report.Failure {
	return report.Failure{
		Node: f.GetNode(), Rank: int(f.GetRank()), GPU: present(f.GetGpu(), toReportGPU), Attempt: int(f.GetAttempt()),
		Exit: toExit(f.GetExit()), At: toTime(f.GetAt()), Lived: f.GetLived().AsDuration(), Further: int(f.GetFurther()), Step: f.GetStep(),
		Kernel: string(tail(f.GetKernel())), Why: f.GetWhy(), Tail: string(tail(f.GetTail())), Traceback: string(tail(f.GetTraceback())),
		Hung: f.GetHung(), Verdict: toVerdict(f.GetVerdict()),
	}
}

func fromExit(e report.Exit) *pb.Exit {
	return &pb.Exit{Code: int32(e.Code), Signal: int32(e.Signal), Oom: e.OOM, Spawn: Plain(e.Spawn)}
}

func toExit(e *pb.Exit) report.Exit {
	return report.Exit{Code: int(e.GetCode()), Signal: int(e.GetSignal()), OOM: e.GetOom(), Spawn: Plain(e.GetSpawn())}
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
