package rendezvous

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

func fromSubmission(s Submission) *pb.Submission {
	r := s.Job.Request
	return &pb.Submission{
		Protocol: protocol, Version: version(), Task: s.Task, Title: plain(s.Title), Detached: s.Detached,
		PlacementTimeout: durationpb.New(s.PlacementTimeout),
		BackoffMin:       durationpb.New(s.BackoffMin), BackoffMax: durationpb.New(s.BackoffMax),
		Spec: &pb.Spec{
			Id: s.Job.ID, Restart: string(s.Job.Restart), MaxRestarts: int32(s.Job.MaxRestarts), Grace: durationpb.New(s.Job.Grace),
			Within: s.Within, Gpus: convert(s.GPUs, func(i int) int32 { return int32(i) }), Backfill: s.Backfill,
			Reserve: s.Reserve, Colocated: int32(s.Colocated),
			Request: &pb.Request{
				MinNodes: int32(r.MinNodes), MaxNodes: int32(r.MaxNodes), PerNode: convert(r.PerNode, func(i int) int32 { return int32(i) }),
				Gpu: r.GPU, Cpus: int32(r.CPUs), Memory: r.Memory, Strategy: string(r.Strategy), OrderBy: r.Order.By, OrderList: r.Order.List,
			},
		},
	}
}

func toSubmission(m *pb.Submission) Submission {
	spec := m.GetSpec()
	r := spec.GetRequest()
	return Submission{
		Task: m.GetTask(), Title: plain(m.GetTitle()), Detached: m.GetDetached(),
		PlacementTimeout: m.GetPlacementTimeout().AsDuration(),
		BackoffMin:       m.GetBackoffMin().AsDuration(), BackoffMax: m.GetBackoffMax().AsDuration(),
		Spec: cluster.Spec{
			Job: job.Spec{
				ID: spec.GetId(), Restart: job.Restart(spec.GetRestart()), MaxRestarts: int(spec.GetMaxRestarts()),
				Grace: spec.GetGrace().AsDuration(),
				Request: placement.Request{
					MinNodes: int(r.GetMinNodes()), MaxNodes: int(r.GetMaxNodes()),
					PerNode: convert(r.GetPerNode(), func(i int32) int { return int(i) }),
					GPU:     r.GetGpu(), CPUs: int(r.GetCpus()), Memory: r.GetMemory(), Strategy: placement.Strategy(r.GetStrategy()),
					Order: placement.Order{By: r.GetOrderBy(), List: r.GetOrderList()},
				},
			},
			Within: spec.GetWithin(), GPUs: convert(spec.GetGpus(), func(i int32) int { return int(i) }), Backfill: spec.GetBackfill(),
			Reserve: spec.GetReserve(), Colocated: int(spec.GetColocated()),
		},
	}
}

func fromDecision(d Decision) *pb.Update {
	return &pb.Update{Body: &pb.Update_Decision{Decision: &pb.Decision{At: fromTime(d.At), Reason: plain(d.Reason), News: d.News}}}
}

func toDecision(d *pb.Decision) Decision {
	return Decision{At: toTime(d.GetAt()), Reason: d.GetReason(), News: d.GetNews()}
}

func fromUpdateResult(r job.Result) *pb.Update {
	return &pb.Update{Body: &pb.Update_Result{Result: fromResult(r)}}
}

func fromGranted(p *placement.Plan) *pb.Update {
	groups := convert(p.Groups, func(g placement.Group) *pb.Group {
		return &pb.Group{Node: fromNode(g.Node), NodeRank: int32(g.NodeRank), Bundles: convert(g.Bundles, fromBundle)}
	})
	return &pb.Update{Body: &pb.Update_Granted{Granted: &pb.Granted{Groups: groups}}}
}

func toGranted(g *pb.Granted) placement.Plan {
	return placement.Plan{Groups: convert(g.GetGroups(), func(g *pb.Group) placement.Group {
		return placement.Group{Node: toNode(g.GetNode()), NodeRank: int(g.GetNodeRank()), Bundles: convert(g.GetBundles(), toBundle)}
	})}
}

func fromFilter(f LogFilter) *pb.LogFilter {
	return &pb.LogFilter{
		Ranks:   convert(f.Ranks, func(s Span) *pb.Span { return &pb.Span{First: int32(s.From), Last: int32(s.To)} }),
		Attempt: int32(f.Attempt), Follow: f.Follow, From: convert(f.From, fromPosition),
	}
}

func toFilter(f *pb.LogFilter) LogFilter {
	return LogFilter{
		Ranks:   convert(f.GetRanks(), func(s *pb.Span) Span { return Span{int(s.GetFirst()), int(s.GetLast())} }),
		Attempt: int(f.GetAttempt()), Follow: f.GetFollow(), From: convert(f.GetFrom(), toPosition),
	}
}

func fromPosition(p LogPosition) *pb.LogPosition {
	return &pb.LogPosition{Attempt: int32(p.Attempt), Rank: int32(p.Rank), Stream: int32(p.Stream), Offset: p.Offset}
}

func toPosition(p *pb.LogPosition) LogPosition {
	return LogPosition{Attempt: int(p.GetAttempt()), Rank: int(p.GetRank()), Stream: int(p.GetStream()), Offset: p.GetOffset()}
}

func fromChunk(c LogChunk) *pb.LogChunk {
	return &pb.LogChunk{
		At: fromPosition(c.LogPosition), Node: c.Node, WorldSize: int32(c.WorldSize), Data: c.Data, Missing: plain(c.Missing),
	}
}

func toChunk(c *pb.LogChunk) LogChunk {
	return LogChunk{
		LogPosition: toPosition(c.GetAt()), Node: c.GetNode(), WorldSize: int(c.GetWorldSize()), Data: c.GetData(), Missing: c.GetMissing(),
	}
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	Node placement.Node
	// Silent is for how long nothing was heard of an agent whose connection is broken; 0 while it is there.
	Silent time.Duration
	// Drained says that it gets no more ranks.
	Drained bool
	// Holds are the GPUs that each job has there, by index.
	Holds []cluster.Holding
}

// JobStatus is one job of a cluster.
type JobStatus struct {
	ID, Title string
	Phase     job.Phase
	// Waits says what the job waits for; once it is over, how it ended.
	Waits string
	// Finished is zero before the end.
	Submitted, Finished   time.Time
	Detached, Reserve     bool
	Within                string
	Attempt               int
	Restarts, MaxRestarts int
	Nodes                 []string
	Ranks, GPUs           int
	Result                *job.Result
}

// Status is a cluster as it stands.
type Status struct {
	// Version is the coordinator's golaunch, Since when it started.
	Version string
	Since   time.Time
	Nodes   []NodeStatus
	// Jobs are in the order of submission: all that are not over, and the last that are.
	Jobs []JobStatus
}

func toStatus(m *pb.StatusReply) Status {
	return Status{
		Version: m.GetVersion(), Since: toTime(m.GetSince()),
		Nodes: convert(m.GetNodes(), func(n *pb.NodeStatus) NodeStatus {
			return NodeStatus{
				Node: toNode(n.GetNode()), Silent: n.GetSilent().AsDuration(), Drained: n.GetDrained(),
				Holds: convert(n.GetHolds(), func(h *pb.Hold) cluster.Holding {
					return cluster.Holding{Job: h.GetJob(), GPUs: convert(h.GetGpus(), func(i int32) int { return int(i) })}
				}),
			}
		}),
		Jobs: convert(m.GetJobs(), toJobStatus),
	}
}

func toJobStatus(j *pb.JobStatus) JobStatus {
	s := JobStatus{
		ID: j.GetId(), Title: j.GetTitle(), Phase: job.Phase(j.GetPhase()), Waits: j.GetWaits(),
		Submitted: toTime(j.GetSubmitted()), Finished: toTime(j.GetFinished()), Detached: j.GetDetached(), Reserve: j.GetReserve(),
		Within: j.GetWithin(), Attempt: int(j.GetAttempt()), Restarts: int(j.GetRestarts()), MaxRestarts: int(j.GetMaxRestarts()),
		Nodes: j.GetNodes(), Ranks: int(j.GetRanks()), GPUs: int(j.GetGpus()),
	}
	if j.GetResult() != nil {
		s.Result = new(toResult(j.GetResult()))
	}
	return s
}
