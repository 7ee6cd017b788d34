package wire

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// FromStatus converts a status into messages. It makes each message once the caller has taken the
// message before.
func FromStatus(s report.Status) iter.Seq[*pb.StatusReply] {
	return func(yield func(*pb.StatusReply) bool) {
		first := &pb.StatusReply{
			Version: s.Version, Since: fromTime(s.Since), Coordinators: s.Coordinators, Silent: s.Silent,
			Requested: Convert(s.Requested, fromRequestedNodes), Blocked: Plain(s.Blocked), Counted: fromTime(s.Counted),
		}
		if !yield(first) {
			return
		}
		for charges := range pieces(each(s.Charges, fromCharge), sizeOf) {
			if !yield(&pb.StatusReply{Charges: charges}) {
				return
			}
		}
		for nodes := range pieces(flat(s.Nodes, fromNodeStatus), sizeOf) {
			if !yield(&pb.StatusReply{Nodes: nodes}) {
				return
			}
		}
		for jobs := range pieces(flat(s.Jobs, fromJobStatus), sizeOf) {
			if !yield(&pb.StatusReply{Jobs: jobs}) {
				return
			}
		}
	}
}

// AddStatus adds the next message to a status. If the first node or job of the message has the same
// name as the last one of the status, AddStatus adds its parts to that last one.
func AddStatus(s *report.Status, m *pb.StatusReply) {
	if m.GetSince() != nil {
		s.Version, s.Since = m.GetVersion(), toTime(m.GetSince())
		s.Coordinators, s.Silent = m.GetCoordinators(), m.GetSilent()
		s.Requested, s.Blocked = Convert(m.GetRequested(), toRequestedNodes), m.GetBlocked()
		s.Counted = toTime(m.GetCounted())
	}
	s.Charges = append(s.Charges, Convert(m.GetCharges(), toCharge)...)
	for _, n := range Convert(m.GetNodes(), toNodeStatus) {
		if i := len(s.Nodes) - 1; i >= 0 && s.Nodes[i].Name == n.Name {
			last := &s.Nodes[i]
			last.Holds, last.Excluded = append(last.Holds, n.Holds...), append(last.Excluded, n.Excluded...)
		} else {
			s.Nodes = append(s.Nodes, n)
		}
	}
	for _, j := range Convert(m.GetJobs(), toJobStatus) {
		if i := len(s.Jobs) - 1; i >= 0 && s.Jobs[i].ID == j.ID {
			s.Jobs[i].Nodes = append(s.Jobs[i].Nodes, j.Nodes...)
			s.Jobs[i].History = append(s.Jobs[i].History, j.History...)
		} else {
			s.Jobs = append(s.Jobs, j)
		}
	}
}

func fromRequestedNodes(r report.RequestedNodes) *pb.RequestedNodes {
	return &pb.RequestedNodes{Kind: r.Kind, Nodes: int32(r.Nodes), Since: fromTime(r.Since), State: Plain(r.State)}
}

func toRequestedNodes(m *pb.RequestedNodes) report.RequestedNodes {
	return report.RequestedNodes{Kind: m.GetKind(), Nodes: int(m.GetNodes()), Since: toTime(m.GetSince()), State: m.GetState()}
}

func fromCharge(c report.Charge) *pb.Charge {
	return &pb.Charge{User: c.User, Kind: Plain(c.Kind), Price: c.Price, Idle: c.Idle, NodeHours: c.NodeHours, GpuHours: c.GPUHours}
}

func toCharge(m *pb.Charge) report.Charge {
	return report.Charge{
		User: m.GetUser(), Kind: m.GetKind(), Price: m.GetPrice(), Idle: m.GetIdle(), NodeHours: m.GetNodeHours(), GPUHours: m.GetGpuHours(),
	}
}

func fromNodeStatus(n report.NodeStatus) iter.Seq[*pb.NodeStatus] {
	return func(yield func(*pb.NodeStatus) bool) {
		part := &pb.NodeStatus{Node: fromStatusNode(n), Drained: n.Drained}
		if n.Silent > 0 {
			part.Silent = durationpb.New(n.Silent)
		}
		next := func() bool {
			sent := part
			part = &pb.NodeStatus{Node: &pb.Node{Name: n.Name}}
			return yield(sent)
		}
		for holds := range pieces(each(n.Holds, fromHolding), sizeOf) {
			if part.Holds != nil && !next() {
				return
			}
			part.Holds = holds
		}
		for excluded := range pieces(each(n.Excluded, fromExclusion), sizeOf) {
			if part.Excluded != nil && !next() {
				return
			}
			part.Excluded = excluded
		}
		next()
	}
}

func toNodeStatus(n *pb.NodeStatus) report.NodeStatus {
	return report.NodeStatus{
		Name: n.GetNode().GetName(), Addr: toIP(n.GetNode().GetAddr()), GPUs: Convert(n.GetNode().GetGpus(), toReportGPU),
		CPUs: int(n.GetNode().GetCpus()), Memory: n.GetNode().GetMemory(), Labels: n.GetNode().GetLabels(),
		Silent: n.GetSilent().AsDuration(), Drained: n.GetDrained(),
		Holds: Convert(n.GetHolds(), toHolding), Excluded: Convert(n.GetExcluded(), toExclusion),
	}
}

func fromStatusNode(n report.NodeStatus) *pb.Node {
	return &pb.Node{
		Name: n.Name, Addr: n.Addr.String(), Gpus: Convert(n.GPUs, fromReportGPU), Cpus: int64(n.CPUs), Memory: n.Memory, Labels: n.Labels,
	}
}

func fromHolding(h report.Holding) *pb.Hold {
	return &pb.Hold{Job: h.Job, Gpus: Convert(h.GPUs, toInt32)}
}

func toHolding(h *pb.Hold) report.Holding {
	return report.Holding{Job: h.GetJob(), GPUs: Convert(h.GetGpus(), toInt)}
}

func fromExclusion(x report.Exclusion) *pb.Exclusion {
	return &pb.Exclusion{Job: x.Job, Why: Plain(x.Why), Until: fromTime(x.Until)}
}

func toExclusion(x *pb.Exclusion) report.Exclusion {
	return report.Exclusion{Job: x.GetJob(), Why: x.GetWhy(), Until: toTime(x.GetUntil())}
}

func fromAwaited(a report.Awaited) *pb.Awaited {
	return &pb.Awaited{Job: a.Job, User: a.User, Priority: a.Priority, Preempted: a.Preempted, Until: fromTime(a.Until)}
}

func toAwaited(m *pb.Awaited) report.Awaited {
	return report.Awaited{Job: m.GetJob(), User: m.GetUser(), Priority: m.GetPriority(), Preempted: m.GetPreempted(), Until: toTime(m.GetUntil())}
}

func fromJobStatus(j report.JobStatus) iter.Seq[*pb.JobStatus] {
	return func(yield func(*pb.JobStatus) bool) {
		part := &pb.JobStatus{
			Id: j.ID, Title: Plain(j.Title), Phase: j.Phase, Waits: Plain(j.Waits), Submitted: fromTime(j.Submitted),
			Finished: fromTime(j.Finished), Detached: j.Detached, Reserve: j.Reserve, Within: j.Within, Attempt: int32(j.Attempt),
			Restarts: int32(j.Restarts), MaxRestarts: int32(j.MaxRestarts), Ranks: int32(j.Ranks), Gpus: int32(j.GPUs),
			Result: optional(j.Result, fromResult), Goodput: optional(j.Goodput, fromGoodput), Saves: optional(j.Saves, fromSaves), SubmitterUid: j.Submitter,
			Workspace: optional(j.Workspace, FromWorkspace), Start: optional(j.Start, fromStart),
			User: j.User, Priority: j.Priority, WaitsFor: Convert(j.WaitsFor, fromAwaited),
			Charges: Convert(j.Charges, fromCharge),
		}
		for nodes := range pieces(slices.Values(j.Nodes), length) {
			if part.Nodes != nil {
				if !yield(part) {
					return
				}
				part = &pb.JobStatus{Id: j.ID}
			}
			part.Nodes = nodes
		}
		for moments := range pieces(each(j.History, fromMoment), sizeOf) {
			history := &pb.JobStatus{Id: j.ID, History: moments}
			if proto.Size(part)+proto.Size(history) <= MaxPiece {
				part.History = moments
				continue
			}
			if !yield(part) {
				return
			}
			part = history
		}
		yield(part)
	}
}

func toJobStatus(j *pb.JobStatus) report.JobStatus {
	return report.JobStatus{
		ID: j.GetId(), Title: j.GetTitle(), Phase: j.GetPhase(), Waits: j.GetWaits(),
		Submitted: toTime(j.GetSubmitted()), Finished: toTime(j.GetFinished()), Detached: j.GetDetached(), Reserve: j.GetReserve(),
		Within: j.GetWithin(), Attempt: int(j.GetAttempt()), Restarts: int(j.GetRestarts()), MaxRestarts: int(j.GetMaxRestarts()),
		Nodes: j.GetNodes(), Ranks: int(j.GetRanks()), GPUs: int(j.GetGpus()), Submitter: j.SubmitterUid,
		User: j.GetUser(), Priority: j.GetPriority(), WaitsFor: Convert(j.GetWaitsFor(), toAwaited), Charges: Convert(j.GetCharges(), toCharge),
		History: Convert(j.GetHistory(), toMoment),
		Result:  present(j.GetResult(), ToResult), Goodput: present(j.GetGoodput(), toGoodput), Saves: present(j.GetSaves(), toSaves),
		Workspace: present(j.GetWorkspace(), ToWorkspace), Start: present(j.GetStart(), toStart),
	}
}

func fromMoment(m report.Moment) *pb.Moment {
	return &pb.Moment{
		At: fromTime(m.At), Attempt: int32(m.Attempt), To: m.To, Cause: Plain(m.Cause), Node: Plain(m.Node), Reason: Plain(m.Reason),
	}
}

func toMoment(m *pb.Moment) report.Moment {
	return report.Moment{
		At: toTime(m.GetAt()), Attempt: int(m.GetAttempt()), To: m.GetTo(), Cause: m.GetCause(), Node: m.GetNode(),
		Reason: m.GetReason(),
	}
}
