package rendezvous

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/goodput"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	Node placement.Node
	// Silent is for how long nothing was heard of an agent whose connection is broken; 0 while it is there.
	Silent time.Duration
	// Drained says that it gets no more ranks.
	Drained bool
	// Holds are the GPUs that each job has there, by index.
	Holds []cluster.Holding
	// Excluded are the jobs that use the node only if others will not do.
	Excluded []Exclusion
}

// Exclusion is that a job uses a node only if others will not do, because of failures there.
type Exclusion struct {
	// Job is empty when it is all jobs: the node's hardware has failed in one of them.
	Job   string
	Why   string
	Until time.Time
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
	// Goodput is what the time of its ranks went into until now, or its end; nil for a reservation and while it has had no ranks.
	Goodput *goodput.Report
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
				Excluded: convert(n.GetExcluded(), func(x *pb.Exclusion) Exclusion {
					return Exclusion{Job: x.GetJob(), Why: x.GetWhy(), Until: toTime(x.GetUntil())}
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
	if j.GetGoodput() != nil {
		s.Goodput = new(toGoodput(j.GetGoodput()))
	}
	if j.GetResult() != nil {
		s.Result = new(toResult(j.GetResult()))
	}
	return s
}

func (s control) Status(_ context.Context, req *pb.StatusRequest) (*pb.StatusReply, error) {
	return ask(s.c, func() (*pb.StatusReply, error) {
		reply := &pb.StatusReply{Version: version(), Since: timestamppb.New(s.c.since)}
		if req.GetJob() != "" {
			r, err := s.c.find(req.GetJob())
			if err != nil {
				return nil, err
			}
			reply.Jobs = append(reply.Jobs, s.c.jobStatus(r))
			return reply, nil
		}
		for _, n := range s.c.state.Cluster.Nodes() {
			reply.Nodes = append(reply.Nodes, s.c.nodeStatus(n))
		}
		for _, r := range s.c.runs {
			reply.Jobs = append(reply.Jobs, s.c.jobStatus(r))
		}
		slices.SortFunc(reply.Jobs, func(a, b *pb.JobStatus) int {
			return a.GetSubmitted().AsTime().Compare(b.GetSubmitted().AsTime())
		})
		return reply, nil
	})
}

func (c *Coordinator) nodeStatus(n cluster.NodeStatus) *pb.NodeStatus {
	s := &pb.NodeStatus{Node: fromNode(n.Node), Drained: n.Drained}
	if m := c.members[n.Node.Name]; m != nil && (m.link == nil || time.Since(m.heard) > c.cfg.Lease/2) {
		s.Silent = durationpb.New(time.Since(m.heard))
	}
	for _, h := range n.Held {
		s.Holds = append(s.Holds, &pb.Hold{Job: h.Job, Gpus: convert(h.GPUs, func(i int) int32 { return int32(i) })})
	}
	if until, avoided := c.state.Avoided[n.Node.Name]; avoided {
		s.Excluded = append(s.Excluded, &pb.Exclusion{Why: plain(c.state.Cluster.Shunned(n.Node.Name)), Until: fromTime(until)})
	}
	for _, x := range n.Excluded {
		s.Excluded = append(s.Excluded, &pb.Exclusion{Job: x.Job, Why: plain(x.Why), Until: fromTime(c.runs[x.Job].Readmits)})
	}
	return s
}

func (c *Coordinator) jobStatus(r *run) *pb.JobStatus {
	s := &pb.JobStatus{
		Id: r.Job.ID, Title: r.Title, Submitted: fromTime(r.Since), Finished: fromTime(r.Over), Detached: r.Detached,
		Reserve: r.Reserve, Within: r.Within, MaxRestarts: int32(r.Job.MaxRestarts), Result: optional(r.Result, fromResult),
		Goodput: optional(r.Goodput(time.Now()), fromGoodput),
	}
	if r.Result != nil {
		s.Phase, s.Waits = string(job.Finished), r.Result.Reason
		s.Restarts, s.Nodes = int32(r.Result.Restarts), slices.Sorted(maps.Keys(r.Nodes))
		return s
	}
	j, _ := c.state.Cluster.Job(r.Job.ID)
	s.Phase, s.Waits = string(j.Summary.Phase), plain(cmp.Or(c.state.Cluster.Why(r.Job.ID), j.Summary.Waits))
	s.Attempt, s.Restarts = int32(j.Summary.Attempt), int32(j.Summary.Restarts)
	for _, n := range j.Summary.Nodes {
		if n.NodeRank < 0 {
			continue
		}
		s.Nodes = append(s.Nodes, n.Node.Name)
		s.Ranks += int32(len(n.Ranks))
		if r.Job.Request.GPU {
			s.Gpus += int32(len(n.Ranks))
		}
	}
	return s
}
