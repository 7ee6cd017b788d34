package rendezvous

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// patienceForReader bounds the wait for a client to take the next message of a status, which is held for it meanwhile.
const patienceForReader = 30 * time.Second

// moment is a cluster as it stood. Nobody changes what it has, so that it can be told outside of the coordinator's goroutine.
type moment struct {
	wire.Status
	// had are the nodes of jobs that are over, by ID.
	had map[string]map[string]bool
}

// Status tells of one moment, in several messages.
func (s clientService) Status(req *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	q := wire.Query{Job: req.GetJob(), Jobs: req.GetJobs(), Open: req.GetOpen(), Brief: req.GetBrief()}
	now, err := ask(s.c, func() (moment, error) { return s.c.moment(q) })
	if err != nil {
		return err
	}
	conn := server.ConnOf(stream.Context())
	limit := time.AfterFunc(patienceForReader, func() { _ = conn.Close() }) // it hangs
	defer limit.Stop()
	for piece := range wire.FromStatus(now.status(q)) {
		if err := stream.Send(piece); err != nil {
			return err
		}
		limit.Reset(patienceForReader)
	}
	return nil
}

func (c *Coordinator) moment(q wire.Query) (moment, error) {
	m := moment{Status: wire.Status{Version: version.String(), Since: c.since}, had: map[string]map[string]bool{}}
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
		m.Nodes = wire.Convert(c.state.Cluster.Nodes(), c.nodeStatus)
	}
	return m, nil
}

func (c *Coordinator) nodeStatus(n cluster.NodeStatus) wire.NodeStatus {
	s := wire.NodeStatus{Node: n.Node, Drained: n.Drained, Holds: n.Held}
	if m := c.members[n.Node.Name]; m != nil && (m.link == nil || time.Since(m.since()) > c.cfg.Lease/2) {
		s.Silent = time.Since(m.since())
	}
	if until, avoided := c.state.Avoided[n.Node.Name]; avoided {
		s.Excluded = append(s.Excluded, wire.Exclusion{Why: c.state.Cluster.Avoided(n.Node.Name), Until: until})
	}
	for _, x := range n.Excluded {
		s.Excluded = append(s.Excluded, wire.Exclusion{Job: x.Job, Why: x.Why, Until: c.runs[x.Job].Readmits})
	}
	return s
}

// jobStatus leaves out the nodes of a job that is over.
func (c *Coordinator) jobStatus(r *run) wire.JobStatus {
	s := wire.JobStatus{
		ID: r.Job.ID, Title: r.Title, Submitted: r.Since, Finished: r.Over, Detached: r.Detached, Reserve: r.Reserve, Within: r.Within,
		MaxRestarts: r.Job.MaxRestarts, Result: r.Result, Goodput: r.Goodput(time.Now()), Submitter: r.Submitter,
		History: wire.Convert(r.History, momentOf),
	}
	if r.Result != nil {
		s.Phase, s.Waits, s.Restarts = job.Finished, r.Result.Reason, r.Result.Restarts
		s.Attempt = r.lastAttempt()
		return s
	}
	j, _ := c.state.Cluster.Job(r.Job.ID)
	s.Phase, s.Waits = j.Summary.Phase, cmp.Or(c.why(r), j.Summary.Waits)
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

// why says why a job waits. It costs a plan of all nodes, and so is kept until something happens.
func (c *Coordinator) why(r *run) string {
	if r.why == nil || r.why.index != c.state.Index {
		r.why = &reason{c.state.Index, c.state.Cluster.Why(r.Job.ID)}
	}
	return r.why.text
}

// Status is what is asked of a moment.
func (m moment) status(q wire.Query) wire.Status {
	s := m.Status
	slices.SortFunc(s.Jobs, func(a, b wire.JobStatus) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	for i, j := range s.Jobs {
		if had, over := m.had[j.ID]; over {
			s.Jobs[i].Nodes = slices.Sorted(maps.Keys(had))
		}
		if q.Brief {
			s.Jobs[i].History = nil
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
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n wire.NodeStatus) bool { return !its[n.Node.Name] })
	}
	return s
}

// lastAttempt is the newest of a job that is over; 0 where none began.
func (r *run) lastAttempt() int {
	if len(r.History) == 0 {
		return 0
	}
	return max(0, r.History[len(r.History)-1].Attempt)
}

func momentOf(m replica.Moment) wire.Moment {
	return wire.Moment{At: m.At, Attempt: m.Attempt, To: m.To.String(), Cause: m.Cause, Node: m.Node, Reason: m.Reason}
}
