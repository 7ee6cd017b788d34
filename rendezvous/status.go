package rendezvous

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/peer"

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
	// Nodes are by node rank; of a job that is over, all that it ever had, by name.
	Nodes       []string
	Ranks, GPUs int
	Result      *job.Result
	// Goodput is what the time of its ranks went into until now, or its end; nil for a reservation and while it has had no ranks.
	Goodput *goodput.Report
}

// Status is a cluster as it stands.
type Status struct {
	// Version is the coordinator's golaunch, Since when it started.
	Version string
	Since   time.Time
	// Coordinators are where those of a cluster are that has several, HOST:PORT, the one that leads first; none if it has one. Silent are
	// those of them that do not answer it.
	Coordinators, Silent []string
	Nodes                []NodeStatus
	// Jobs are in the order of submission: all that are not over, and the last that are.
	Jobs []JobStatus
}

// Query limits a [Status].
type Query struct {
	// Job is the only one that is described, with its nodes; empty for all.
	Job string
	// Jobs leaves out the nodes, Open the jobs that are over, and Brief what the ranks wrote before they failed: Tail, Traceback and Kernel
	// of a Cause.
	Jobs, Open, Brief bool
}

// patienceForReader bounds the wait for a client to take the next message of a status, which is held for it meanwhile.
const patienceForReader = 30 * time.Second

// moment is a cluster as it stood. Nobody changes what it has, so that it can be told outside of the coordinator's goroutine.
type moment struct {
	Status
	// had are the nodes of jobs that are over, by ID.
	had map[string]map[string]bool
}

// Status tells of one moment, in several messages.
func (s control) Status(req *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	q := Query{Job: req.GetJob(), Jobs: req.GetJobs(), Open: req.GetOpen(), Brief: req.GetBrief()}
	now, err := ask(s.c, func() (moment, error) { return s.c.moment(q) })
	if err != nil {
		return err
	}
	p, _ := peer.FromContext(stream.Context())
	limit := time.AfterFunc(patienceForReader, func() { _ = p.Addr.(watchedAddr).conn.Close() }) // it hangs
	defer limit.Stop()
	for piece := range fromStatus(now.status(q)) {
		if err := stream.Send(piece); err != nil {
			return err
		}
		limit.Reset(patienceForReader)
	}
	return nil
}

func (c *Coordinator) moment(q Query) (moment, error) {
	m := moment{Status: Status{Version: version(), Since: c.since}, had: map[string]map[string]bool{}}
	jobs := c.runs
	if q.Job != "" {
		r, err := c.find(q.Job)
		if err != nil {
			return m, err
		}
		jobs = map[string]*run{q.Job: r}
	}
	for id, r := range jobs {
		switch {
		case r.Result == nil:
			m.Jobs = append(m.Jobs, c.jobStatus(r))
		case !q.Open:
			m.Jobs = append(m.Jobs, c.jobStatus(r))
			m.had[id] = r.Nodes
		}
	}
	if q.Job == "" {
		m.Coordinators, m.Silent = c.coordinators()
	}
	if !q.Jobs {
		m.Nodes = convert(c.state.Cluster.Nodes(), c.nodeStatus)
	}
	return m, nil
}

func (c *Coordinator) nodeStatus(n cluster.NodeStatus) NodeStatus {
	s := NodeStatus{Node: n.Node, Drained: n.Drained, Holds: n.Held}
	if m := c.members[n.Node.Name]; m != nil && (m.link == nil || time.Since(m.heard) > c.cfg.Lease/2) {
		s.Silent = time.Since(m.heard)
	}
	if until, avoided := c.state.Avoided[n.Node.Name]; avoided {
		s.Excluded = append(s.Excluded, Exclusion{Why: c.state.Cluster.Shunned(n.Node.Name), Until: until})
	}
	for _, x := range n.Excluded {
		s.Excluded = append(s.Excluded, Exclusion{Job: x.Job, Why: x.Why, Until: c.runs[x.Job].Readmits})
	}
	return s
}

// jobStatus leaves out the nodes of a job that is over.
func (c *Coordinator) jobStatus(r *run) JobStatus {
	s := JobStatus{
		ID: r.Job.ID, Title: r.Title, Submitted: r.Since, Finished: r.Over, Detached: r.Detached, Reserve: r.Reserve, Within: r.Within,
		MaxRestarts: r.Job.MaxRestarts, Result: r.Result, Goodput: r.Goodput(time.Now()),
	}
	if r.Result != nil {
		s.Phase, s.Waits, s.Restarts = job.Finished, r.Result.Reason, r.Result.Restarts
		return s
	}
	j, _ := c.state.Cluster.Job(r.Job.ID)
	s.Phase, s.Waits = j.Summary.Phase, cmp.Or(c.state.Cluster.Why(r.Job.ID), j.Summary.Waits)
	s.Attempt, s.Restarts = j.Summary.Attempt, j.Summary.Restarts
	for _, n := range j.Summary.Nodes {
		if n.NodeRank < 0 {
			continue
		}
		s.Nodes = append(s.Nodes, n.Node.Name)
		s.Ranks += len(n.Ranks)
		if r.Job.Request.GPU {
			s.GPUs += len(n.Ranks)
		}
	}
	return s
}

// status is what is asked of a moment.
func (m moment) status(q Query) Status {
	s := m.Status
	slices.SortFunc(s.Jobs, func(a, b JobStatus) int { return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID)) })
	for i, j := range s.Jobs {
		if had, over := m.had[j.ID]; over {
			s.Jobs[i].Nodes = slices.Sorted(maps.Keys(had))
		}
		if q.Brief && j.Result != nil && j.Result.Cause != nil {
			result, cause := *j.Result, *j.Result.Cause
			cause.Tail, cause.Traceback, cause.Kernel = "", "", ""
			result.Cause, s.Jobs[i].Result = &cause, &result
		}
	}
	if q.Job != "" {
		its := map[string]bool{}
		for _, name := range s.Jobs[0].Nodes {
			its[name] = true
		}
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n NodeStatus) bool { return !its[n.Node.Name] })
	}
	return s
}
