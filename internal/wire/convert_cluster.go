package wire

import (
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// FromSubmission converts a submission into messages. The first has everything except Order.List.
func FromSubmission(s replica.Submission) []*pb.Submission {
	r := s.Job.Request
	all := []*pb.Submission{{
		Protocol: Protocol, Version: version.String(), Task: s.Task, Title: Plain(s.Title), Detached: s.Detached, Key: s.Key,
		Workspace:        FromWorkspace(s.Workspace),
		PlacementTimeout: durationpb.New(s.PlacementTimeout),
		BackoffMin:       durationpb.New(s.BackoffMin), BackoffMax: durationpb.New(s.BackoffMax), LastCall: durationpb.New(s.LastCall),
		Spec: &pb.Spec{
			Sole: s.OnlyJob, FixedPool: s.Job.FixedPool, Pool: int32(s.Job.Pool),
			Groups: int32(s.Job.Groups), MinGroups: int32(s.Job.MinGroups), LostRanks: int32(s.Job.LostRanks),
			Id: s.Job.ID, Restart: string(s.Job.Restart), MaxRestarts: int32(s.Job.MaxRestarts), Grace: durationpb.New(s.Job.Grace),
			Within: s.Within, Gpus: Convert(s.GPUs, toInt32), Backfill: s.Backfill, Priority: string(s.Priority),
			Reserve: s.Reserve, Colocated: int32(s.Colocated), RefillAfter: durationpb.New(s.Job.RefillAfter),
			ExcludeAfter: int32(s.Job.ExcludeAfter), ExcludeFor: durationpb.New(s.Job.ExcludeFor), Rules: valid(s.Job.Rules),
			ExitCodes: fromExitCodes(s.Job.ExitCodes),
			GrowAfter: durationpb.New(s.Job.GrowAfter), DrainTime: durationpb.New(s.Job.DrainTime),
			Request: &pb.Request{
				MinNodes: int32(r.MinNodes), MaxNodes: int32(r.MaxNodes), PerNode: Convert(r.PerNode, toInt32),
				Gpu: r.GPU, PerGpu: int32(r.PerGPU), Cpus: int32(r.CPUs), Memory: r.Memory, Strategy: string(r.Strategy), OrderBy: r.Order.By,
				SharedAddr: r.SharedAddr,
			},
		},
	}}
	for names := range pieces(slices.Values(r.Order.List), length) {
		all = append(all, &pb.Submission{Spec: &pb.Spec{Request: &pb.Request{OrderList: names}}})
	}
	return all
}

func ToSubmission(m *pb.Submission) replica.Submission {
	spec := m.GetSpec()
	r := spec.GetRequest()
	return replica.Submission{
		Task: m.GetTask(), Title: Plain(m.GetTitle()), Detached: m.GetDetached(), Key: m.GetKey(),
		Workspace:        ToWorkspace(m.GetWorkspace()),
		PlacementTimeout: m.GetPlacementTimeout().AsDuration(),
		BackoffMin:       m.GetBackoffMin().AsDuration(), BackoffMax: m.GetBackoffMax().AsDuration(), LastCall: m.GetLastCall().AsDuration(),
		Spec: cluster.Spec{
			Job: job.Spec{
				ID: spec.GetId(), Restart: job.Restart(spec.GetRestart()), MaxRestarts: int(spec.GetMaxRestarts()),
				Grace: spec.GetGrace().AsDuration(), RefillAfter: spec.GetRefillAfter().AsDuration(),
				ExcludeAfter: int(spec.GetExcludeAfter()), ExcludeFor: spec.GetExcludeFor().AsDuration(), Rules: spec.GetRules(),
				ExitCodes: toExitCodes(spec.GetExitCodes()),
				GrowAfter: spec.GetGrowAfter().AsDuration(), DrainTime: spec.GetDrainTime().AsDuration(),
				FixedPool: spec.GetFixedPool(), Pool: int(spec.GetPool()),
				Groups: int(spec.GetGroups()), MinGroups: int(spec.GetMinGroups()), LostRanks: int(spec.GetLostRanks()),
				Request: placement.Request{
					MinNodes: int(r.GetMinNodes()), MaxNodes: int(r.GetMaxNodes()),
					PerNode: Convert(r.GetPerNode(), toInt),
					GPU:     r.GetGpu(), PerGPU: int(r.GetPerGpu()), CPUs: int(r.GetCpus()), Memory: r.GetMemory(), Strategy: placement.Strategy(r.GetStrategy()),
					Order: placement.Order{By: r.GetOrderBy(), List: r.GetOrderList()}, SharedAddr: r.GetSharedAddr(),
				},
			},
			Within: spec.GetWithin(), GPUs: Convert(spec.GetGpus(), toInt), Backfill: spec.GetBackfill(), Priority: cluster.Priority(spec.GetPriority()),
			Reserve: spec.GetReserve(), Colocated: int(spec.GetColocated()), OnlyJob: spec.GetSole(),
		},
	}
}

func fromExitCodes(codes map[report.Ending]int) map[string]int32 {
	m := map[string]int32{}
	for ending, code := range codes {
		m[string(ending)] = int32(code)
	}
	return m
}

func toExitCodes(m map[string]int32) map[report.Ending]int {
	if len(m) == 0 {
		return nil
	}
	codes := make(map[report.Ending]int, len(m))
	for ending, code := range m {
		codes[report.Ending(ending)] = int(code)
	}
	return codes
}

func fromDecision(d report.Decision) *pb.Update {
	return &pb.Update{Body: &pb.Update_Decision{Decision: &pb.Decision{
		At: fromTime(d.At), Reason: Plain(d.Reason), News: d.News, Failure: optional(d.Failure, fromFailure),
	}}}
}

func ToDecision(d *pb.Decision) report.Decision {
	return report.Decision{At: toTime(d.GetAt()), Reason: d.GetReason(), News: d.GetNews(), Failure: present(d.GetFailure(), toFailure)}
}

// FromUpdate converts an update into messages. It makes each message once the caller has taken the
// message before.
func FromUpdate(u Update) iter.Seq[*pb.Update] {
	return func(yield func(*pb.Update) bool) {
		switch {
		case u.Decision != nil:
			yield(fromDecision(*u.Decision))
		case u.Result != nil:
			yield(&pb.Update{Body: &pb.Update_Result{Result: fromResult(*u.Result)}})
		case u.Granted != nil:
			for g := range fromGranted(*u.Granted) {
				if !yield(&pb.Update{Body: &pb.Update_Granted{Granted: g}}) {
					return
				}
			}
		}
	}
}

// fromGranted converts a plan into messages. All but the last say that more follow.
func fromGranted(p placement.Plan) iter.Seq[*pb.Granted] {
	return func(yield func(*pb.Granted) bool) {
		last := &pb.Granted{}
		for groups := range pieces(each(p.Groups, fromGroup), sizeOf) {
			if last.Groups != nil {
				last.More = true
				if !yield(last) {
					return
				}
			}
			last = &pb.Granted{Groups: groups}
		}
		yield(last)
	}
}

func fromGroup(g placement.Group) *pb.Group {
	return &pb.Group{Node: FromNode(g.Node), NodeRank: int32(g.NodeRank), Bundles: Convert(g.Bundles, fromBundle)}
}

func ToGroup(g *pb.Group) placement.Group {
	return placement.Group{Node: ToNode(g.GetNode()), NodeRank: int(g.GetNodeRank()), Bundles: Convert(g.GetBundles(), toBundle)}
}

func fromFilter(f report.LogFilter) *pb.LogFilter {
	return &pb.LogFilter{
		Ranks:   Convert(f.Ranks, func(s report.Span) *pb.Span { return &pb.Span{First: int32(s.From), Last: int32(s.To)} }),
		Attempt: int32(f.Attempt), Follow: f.Follow, From: Convert(f.From, fromPosition),
	}
}

func ToFilter(f *pb.LogFilter) report.LogFilter {
	return report.LogFilter{
		Ranks:   Convert(f.GetRanks(), func(s *pb.Span) report.Span { return report.Span{From: int(s.GetFirst()), To: int(s.GetLast())} }),
		Attempt: int(f.GetAttempt()), Follow: f.GetFollow(), From: Convert(f.GetFrom(), toPosition),
	}
}

// FromInquiry converts a question to nodes into messages. The first has everything except the
// positions in logs. from has these positions, by the node that has delivered the logs.
func FromInquiry(q Inquiry, from map[string][]report.LogPosition) []*pb.Inquiry {
	q.Logs.From = nil
	all := []*pb.Inquiry{{Job: q.Job, Question: fromQuestion(q.Question), Within: durationpb.New(q.Within), Nodes: q.Nodes}}
	nodes := func(node string) iter.Seq[*pb.LogsFrom] {
		return each(slices.Collect(pieces(each(from[node], fromPosition), sizeOf)), func(at []*pb.LogPosition) *pb.LogsFrom {
			return &pb.LogsFrom{Node: node, At: at}
		})
	}
	for part := range pieces(flat(slices.Sorted(maps.Keys(from)), nodes), sizeOf) {
		all = append(all, &pb.Inquiry{From: part})
	}
	return all
}

// ToInquiry reverses FromInquiry, without the positions.
func ToInquiry(m *pb.Inquiry) Inquiry {
	return Inquiry{Job: m.GetJob(), Question: ToQuestion(m.GetQuestion()), Nodes: m.GetNodes(), Within: m.GetWithin().AsDuration()}
}

func ToFrom(from []*pb.LogsFrom) map[string][]report.LogPosition {
	all := map[string][]report.LogPosition{}
	for _, f := range from {
		all[f.GetNode()] = append(all[f.GetNode()], Convert(f.GetAt(), toPosition)...)
	}
	return all
}

func fromPosition(p report.LogPosition) *pb.LogPosition {
	return &pb.LogPosition{Attempt: int32(p.Attempt), Rank: int32(p.Rank), Stream: int32(p.Stream), Offset: p.Offset}
}

func toPosition(p *pb.LogPosition) report.LogPosition {
	return report.LogPosition{Attempt: int(p.GetAttempt()), Rank: int(p.GetRank()), Stream: int(p.GetStream()), Offset: p.GetOffset()}
}

func fromChunk(c report.LogChunk) *pb.LogChunk {
	return &pb.LogChunk{At: fromPosition(c.LogPosition), WorldSize: int32(c.WorldSize), Data: c.Data}
}

func toChunk(c *pb.LogChunk) report.LogChunk {
	return report.LogChunk{LogPosition: toPosition(c.GetAt()), WorldSize: int(c.GetWorldSize()), Data: c.GetData()}
}
