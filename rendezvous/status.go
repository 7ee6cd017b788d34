package rendezvous

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// statusReadTimeout bounds the wait for a client to read the next message of a status, because the
// status takes memory until then.
const statusReadTimeout = 30 * time.Second

// statusSnapshot is the status at one moment. It is immutable, so that other goroutines may read
// it.
type statusSnapshot struct {
	report.Status
	// pastNodes has, for each job that is over, its nodes by name.
	pastNodes map[string]map[string]bool
}

// Status sends the status of one moment in several messages.
func (s clientService) Status(req *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	q := report.Query{Job: req.GetJob(), Jobs: req.GetJobs(), Open: req.GetOpen(), Brief: req.GetBrief()}
	snapshot, err := ask(s.c, func() (statusSnapshot, error) { return s.c.statusSnapshot(q) })
	if err != nil {
		return err
	}
	conn := server.ConnOf(stream.Context())
	limit := time.AfterFunc(statusReadTimeout, func() { _ = conn.Close() }) // the client hangs
	defer limit.Stop()
	for piece := range wire.FromStatus(snapshot.answer(q)) {
		if err := stream.Send(piece); err != nil {
			return err
		}
		limit.Reset(statusReadTimeout)
	}
	return nil
}

func (c *Coordinator) statusSnapshot(q report.Query) (statusSnapshot, error) {
	s := statusSnapshot{Status: report.Status{Version: version.String(), Since: c.started}, pastNodes: map[string]map[string]bool{}}
	jobs := c.jobs
	if q.Job != "" {
		j, err := c.job(q.Job)
		if err != nil {
			return s, err
		}
		jobs = map[string]*trackedJob{q.Job: j}
	}
	var charged map[string][]report.Charge
	if q.Job == "" {
		s.Counted, s.Charges, charged = c.charges()
	}
	for id, j := range jobs {
		if j.Result != nil && q.Open {
			continue
		}
		st := c.jobStatus(j)
		st.Charges = charged[id]
		s.Jobs = append(s.Jobs, st)
		if j.Result != nil {
			s.pastNodes[id] = j.Nodes
		}
	}
	if q.Job == "" {
		c.capacity.status(&s.Status)
		s.Coordinators, s.Silent = c.succession.coordinators()
	}
	if !q.Jobs {
		s.Nodes = wire.Convert(c.state.Cluster.Nodes(), c.nodeStatus)
	}
	return s, nil
}

// charges returns since when a cluster has counted the time of its nodes, how that time was spent,
// and the charges of each job.
func (c *Coordinator) charges() (counted time.Time, all []report.Charge, byJob map[string][]report.Charge) {
	if c.state.OnlyJob() != nil {
		return counted, nil, nil
	}
	prices := map[string]float64{}
	for _, k := range c.cfg.Capacity {
		prices[k.Name] = k.Cost
	}
	of := func(user, kind string, t charge.Time) report.Charge {
		const hour = float64(time.Hour / time.Millisecond)
		return report.Charge{User: user, Kind: kind, Price: prices[kind], NodeHours: float64(t.Nodes) / hour, GPUHours: float64(t.GPUs) / hour}
	}
	byJob = map[string][]report.Charge{}
	jobs, ledger := c.state.Cluster.Spent(now())
	for id, charged := range jobs {
		for _, kind := range slices.Sorted(maps.Keys(charged)) {
			byJob[id] = append(byJob[id], of("", kind, charged[kind]))
		}
	}
	for p, t := range ledger.Users {
		all = append(all, of(p.User, p.Kind, t))
	}
	slices.SortFunc(all, func(a, b report.Charge) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Kind, b.Kind))
	})
	for _, kind := range slices.Sorted(maps.Keys(ledger.Idle)) {
		idle := of("", kind, ledger.Idle[kind])
		idle.Idle = true
		all = append(all, idle)
	}
	return ledger.Since, all, byJob
}

// nodeStatus completes the cluster's data about a node with the values that depend on the time.
func (c *Coordinator) nodeStatus(n report.NodeStatus) report.NodeStatus {
	if m := c.members[n.Name]; m != nil && (m.stream == nil || time.Since(m.LastHeard()) > c.cfg.Lease/2) {
		n.Silent = time.Since(m.LastHeard())
	}
	for i, x := range n.Excluded {
		n.Excluded[i].Until = c.jobs[x.Job].Readmits
	}
	if until, avoided := c.state.Avoided[n.Name]; avoided {
		n.Excluded = slices.Insert(n.Excluded, 0, report.Exclusion{Why: c.state.Cluster.Avoided(n.Name), Until: until})
	}
	return n
}

// shownID is how many characters of a workspace's ID a status contains. A client that knows the
// whole ID could submit a job with that workspace.
const shownID = 12

// jobStatus returns the status of a job. It omits the nodes of a job that is over; answer adds
// them.
func (c *Coordinator) jobStatus(j *trackedJob) report.JobStatus {
	s := report.JobStatus{
		ID: j.Job.ID, Title: j.Title, Submitted: j.Since, Finished: j.Over, Detached: j.Detached, Reserve: j.Reserve, Within: j.Within,
		MaxRestarts: j.Job.MaxRestarts, Result: j.Result, Goodput: j.Goodput(time.Now()), Saves: c.state.Saves(j.Record, time.Now()), Submitter: j.Submitter,
		Start: j.Start(), History: slices.Clone(j.History), User: j.User,
	}
	if !j.OnlyJob && j.Within == "" {
		s.Priority = string(cmp.Or(j.Priority, cluster.Interactive))
	}
	if w := j.Workspace; w.ID != "" {
		w.ID = w.ID[:min(shownID, len(w.ID))]
		s.Workspace = &w
	}
	if j.Result != nil {
		s.Phase, s.Waits, s.Restarts = string(job.Finished), j.Result.Reason, j.Result.Restarts
		s.Attempt = j.lastAttempt()
		return s
	}
	status, _ := c.state.Cluster.Job(j.Job.ID)
	summary := status.Summary
	s.Phase, s.Waits = string(summary.Phase), cmp.Or(c.why(j), summary.Waits)
	s.Attempt, s.Restarts, s.WaitsFor = summary.Attempt, summary.Restarts, status.WaitsFor
	var preempted []string
	for _, a := range s.WaitsFor {
		if a.Preempted {
			preempted = append(preempted, a.At(time.Now()))
		}
	}
	if preempted != nil {
		s.Waits = "waiting for " + strings.Join(preempted, " and ")
	}
	for _, n := range summary.Nodes {
		if n.NodeRank < 0 {
			continue
		}
		s.Nodes = append(s.Nodes, n.Node.Name)
		s.Ranks += len(n.Ranks)
		s.GPUs += j.Job.Request.Takes(len(n.Ranks))
	}
	return s
}

// why returns why a job waits. To find the reason, the cluster has to plan for all nodes, so why
// keeps the answer until the state changes.
func (c *Coordinator) why(j *trackedJob) string {
	if j.why == nil || j.why.index != c.state.Index {
		j.why = &reason{c.state.Index, c.state.Cluster.Why(j.Job.ID)}
	}
	return j.why.text
}

// answer returns the part of the snapshot that a query asks for.
func (snapshot statusSnapshot) answer(q report.Query) report.Status {
	s := snapshot.Status
	slices.SortFunc(s.Jobs, func(a, b report.JobStatus) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	for i, j := range s.Jobs {
		if nodes, over := snapshot.pastNodes[j.ID]; over {
			s.Jobs[i].Nodes = slices.Sorted(maps.Keys(nodes))
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
		ofJob := map[string]bool{}
		for _, name := range s.Jobs[0].Nodes {
			ofJob[name] = true
		}
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n report.NodeStatus) bool { return !ofJob[n.Name] })
	}
	return s
}

// lastAttempt returns the newest attempt of a job that is over; 0 if none began.
func (j *trackedJob) lastAttempt() int {
	if len(j.History) == 0 {
		return 0
	}
	return max(0, j.History[len(j.History)-1].Attempt)
}
