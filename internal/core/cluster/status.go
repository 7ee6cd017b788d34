package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// JobSummary is one job or reservation.
type JobSummary struct {
	Spec Spec
	// Summary of a reservation has the phases gathering, running while it is placed, stopping and
	// finished.
	Summary job.Summary
	// Waits is why the job is in the queue. It is empty when the job is not in the queue. WaitsFor
	// are the jobs for which it waits, if they are known.
	Waits    string
	WaitsFor []report.Awaited
}

// Nodes returns all nodes, by name. The caller, who has a clock, adds how long a node has been
// silent, and until when it is excluded.
func (s *State) Nodes() []report.NodeStatus {
	list := make([]report.NodeStatus, 0, len(s.nodes))
	excluded := s.excluded()
	for _, name := range sorted(s.nodes) {
		n := s.nodes[name]
		st := report.NodeStatus{
			Name: name, Addr: n.facts.Addr, CPUs: n.facts.CPUs, Memory: n.facts.Memory, Labels: n.facts.Labels, Drained: n.drained,
			Excluded: excluded[name],
		}
		for _, g := range n.free.GPUs {
			st.GPUs = append(st.GPUs, report.GPU{Index: g.Index, UUID: g.UUID, HeldBy: g.HeldBy})
		}
		for _, e := range n.holders {
			st.Holds = append(st.Holds, report.Holding{Job: e.Job.ID, GPUs: indexes(e.held[name].GPUs)})
		}
		list = append(list, st)
	}
	return list
}

func indexes(gpus []placement.GPU) []int {
	if gpus == nil {
		return nil
	}
	list := make([]int, len(gpus))
	for i, g := range gpus {
		list[i] = g.Index
	}
	return list
}

// excluded says which jobs exclude each node, and why.
func (s *State) excluded() map[string][]report.Exclusion {
	nodes := map[string][]report.Exclusion{}
	for _, e := range s.bySubmission() {
		if e.done {
			continue
		}
		for name, why := range e.state.Excluded() {
			nodes[name] = append(nodes[name], report.Exclusion{Job: e.Job.ID, Why: why})
		}
	}
	return nodes
}

// Drained reports whether a node is there and drained.
func (s *State) Drained(node string) bool { return s.nodes[node] != nil && s.nodes[node].drained }

// Avoided says why jobs get a node only if no other node suffices; empty for other nodes.
func (s *State) Avoided(node string) string { return s.avoided[node] }

// Limited reports whether the limits of users equal the given ones.
func (s *State) Limited(limits Limits) bool { return maps.EqualFunc(s.limits, limits, maps.Equal) }

// Jobs returns all jobs, in the order of submission.
func (s *State) Jobs() []JobSummary {
	list := make([]JobSummary, 0, len(s.jobs))
	for _, e := range s.bySubmission() {
		list = append(list, s.status(e))
	}
	return list
}

// Job returns one job; false if there is no job with this id.
func (s *State) Job(id string) (JobSummary, bool) {
	e := s.jobs[id]
	if e == nil {
		return JobSummary{}, false
	}
	return s.status(e), true
}

// Why says why a job waits. For the first job of a queue, it makes a plan and gives a reason for
// each node. For other jobs, it repeats the reason that they were told. It returns an empty text
// for a job that does not wait.
func (s *State) Why(id string) string {
	e := s.jobs[id]
	if e == nil || !e.wait.queued {
		return ""
	}
	if why := s.preempting(e); why != "" {
		return why
	}
	if res := e.queue.reservation; !e.wait.over && e.queue.waiting[0] == e && (res == nil || len(res.held) > 0) {
		if _, _, err := s.solve(e, nil); err != nil {
			return err.Error()
		}
	}
	return e.wait.told
}

func (s *State) status(e *entry) JobSummary {
	st := JobSummary{Spec: e.Spec, Summary: e.state.Summary()}
	if e.wait.queued {
		st.Waits, st.WaitsFor = e.wait.told, s.awaited(e)
		if b := e.wait.behind; b != nil {
			st.WaitsFor = append(st.WaitsFor, report.Awaited{Job: b.Job.ID, User: b.User, Priority: string(b.Priority)})
		}
	}
	switch {
	case e.inner == nil:
	case e.ended && !e.done:
		st.Summary.Phase = job.Stopping
		st.Summary.Waits += "; waiting for " + words.Count(len(e.inner.open), "job") + " within it to end"
	case st.Summary.Phase == job.Preparing:
		st.Summary.Phase, st.Summary.Waits = job.Running, e.standing()
	}
	return st
}

// Meeting says which ranks are missing at the start of a job, or for which key most of its ranks
// wait. all is set once all ranks have connected. Both results are empty if there is no such job.
func (s *State) Meeting(id string, m job.Meeting) (why string, all *job.Complete) {
	if e := s.jobs[id]; e != nil {
		return e.state.Meeting(m), e.state.Completed(m)
	}
	return "", nil
}

// Live reports whether processes of an attempt of a job may be on a node. Any other process of the
// job on a returning node must end.
func (s *State) Live(id, node string, unit, attempt int) bool {
	e := s.jobs[id]
	return e != nil && e.state.Live(node, unit, attempt)
}

// Cohort is [jobstate.State.Cohort] of a job with replica groups.
func (s *State) Cohort(id string) (cohort int64, members []lighthouse.Replica) {
	if e := s.jobs[id]; e != nil {
		return e.state.Cohort()
	}
	return 0, nil
}

// Trains is [jobstate.State.Trains].
func (s *State) Trains(id string, group, attempt int) bool {
	e := s.jobs[id]
	return e != nil && e.state.Trains(group, attempt)
}

// Attempt is the newest attempt of a unit of a job.
func (s *State) Attempt(id string, unit int) int {
	if e := s.jobs[id]; e != nil {
		return e.state.Attempt(unit)
	}
	return -1
}

// Weighs reports whether the evidence of a job's rank can change the verdict on a failure, see
// [jobstate.State.Weighs]. Otherwise the caller can omit the evidence from the event for
// [State.Step].
func (s *State) Weighs(id string, ev job.Exited) bool {
	e := s.jobs[id]
	return e != nil && e.state.Weighs(ev)
}

// Saves returns the known checkpoints of a job; nil if none is known.
func (s *State) Saves(id string) *report.Saves {
	if e := s.jobs[id]; e != nil {
		return e.state.Saves()
	}
	return nil
}

// Charged returns the charges of each known job until a time, by ID and kind of node. The ledger
// has all other time.
func (s *State) Charged(until time.Time) (jobs map[string]map[string]charge.Time, others charge.Ledger) {
	jobs, others = make(map[string]map[string]charge.Time, len(s.jobs)), s.spent.Clone()
	for id, e := range s.jobs {
		jobs[id] = maps.Clone(e.charged)
	}
	for _, n := range s.nodes {
		holders, each, idle := n.divide(until)
		for i, e := range holders {
			if each[i] != (charge.Time{}) {
				each[i].Add(jobs[e.Job.ID][n.kind])
				jobs[e.Job.ID][n.kind] = each[i]
			}
		}
		others.Rest(n.kind, idle)
	}
	return jobs, others
}

// Spent returns the charges of each known job, as Charged does, and a ledger of all time. There the
// jobs count for their users as they will after Forget.
func (s *State) Spent(until time.Time) (jobs map[string]map[string]charge.Time, all charge.Ledger) {
	jobs, all = s.Charged(until)
	for _, e := range s.bySubmission() {
		all.Fold(e.User, jobs[e.Job.ID])
	}
	return jobs, all
}

// Forget drops a finished job, and adds its charges to those of its user. It does not drop a job
// that has not finished.
func (s *State) Forget(id string) {
	if e := s.jobs[id]; e != nil && e.done {
		s.spent.Fold(e.User, e.charged)
		delete(s.jobs, id)
	}
}

// bySubmission returns all jobs in the order of submission.
func (s *State) bySubmission() []*entry { return slices.SortedFunc(maps.Values(s.jobs), bySubmission) }

// Has reports whether a node is in the cluster.
func (s *State) Has(node string) bool { return s.nodes[node] != nil }
