package cluster

import (
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// NodeStatus is one node of the cluster.
type NodeStatus struct {
	// Node is as its agent described it, but that GPUs which jobs hold are HeldBy "job ID" or "reservation ID".
	Node    placement.Node
	Drained bool
	// Excluded are the jobs that use it only if others will not do, in the order of submission.
	Excluded []Exclusion
	// Held is who holds what of the node, in the order of submission.
	Held []Holding
}

// Holding is what a job or a reservation has of a node. A job without GPUs has none, and may run there all the same.
type Holding struct {
	Job  string
	GPUs []int
}

// Exclusion is that a job uses a node only if others will not do.
type Exclusion struct{ Job, Why string }

// JobStatus is one job or reservation.
type JobStatus struct {
	Spec Spec
	// Summary of a reservation is of its phases gathering, running while it is placed, stopping and finished.
	Summary job.Summary
	// Waits is why it is in the queue, empty when it is not.
	Waits string
}

// Nodes are all nodes, by name.
func (s *State) Nodes() []NodeStatus {
	list := make([]NodeStatus, 0, len(s.nodes))
	excluded := s.excluded()
	for _, name := range sorted(s.nodes) {
		n := s.nodes[name]
		st := NodeStatus{Node: n.facts, Drained: n.drained, Excluded: excluded[name]}
		st.Node.GPUs = n.free.GPUs // which are made anew when they change
		for _, e := range n.holders {
			st.Held = append(st.Held, Holding{Job: e.Job.ID, GPUs: indexes(e.held[name].GPUs)})
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

// excluded says by which jobs each node is, and why.
func (s *State) excluded() map[string][]Exclusion {
	nodes := map[string][]Exclusion{}
	for _, e := range s.bySubmission() {
		if e.done {
			continue
		}
		for name, why := range e.state.Excluded() {
			nodes[name] = append(nodes[name], Exclusion{e.Job.ID, why})
		}
	}
	return nodes
}

// Drained says that a node is there, and given to no job.
func (s *State) Drained(node string) bool { return s.nodes[node] != nil && s.nodes[node].drained }

// Shunned says why jobs are given a node only if others will not do; it is empty for others.
func (s *State) Shunned(node string) string { return s.shunned[node] }

// Jobs are all jobs, in the order of submission.
func (s *State) Jobs() []JobStatus {
	list := make([]JobStatus, 0, len(s.jobs))
	for _, e := range s.bySubmission() {
		list = append(list, e.status())
	}
	return list
}

// Job is one job; false if there is none with this id.
func (s *State) Job(id string) (JobStatus, bool) {
	e := s.jobs[id]
	if e == nil {
		return JobStatus{}, false
	}
	return e.status(), true
}

// Why says why a job waits: of the first of its queue node by node, which costs a plan, of others as they were told. It is empty
// for a job that does not wait.
func (s *State) Why(id string) string {
	e := s.jobs[id]
	if e == nil || !e.waits {
		return ""
	}
	if res := e.queue.reservation; e.queue.waiting[0] == e && (res == nil || len(res.held) > 0) {
		if _, _, err := s.solve(e, nil); err != nil {
			return err.Error()
		}
	}
	return e.told
}

func (e *entry) status() JobStatus {
	st := JobStatus{Spec: e.Spec, Summary: e.state.Summary()}
	if e.waits {
		st.Waits = e.told
	}
	switch {
	case e.inner == nil:
	case e.ended && !e.done:
		st.Summary.Phase = job.Stopping
		st.Summary.Waits += "; waiting for " + count(len(e.inner.open), "job") + " within it to end"
	case st.Summary.Phase == job.Preparing:
		st.Summary.Phase, st.Summary.Waits = job.Running, e.standing()
	}
	return st
}

// Meeting says who is missing at the start of a job, or what all but a few of its ranks wait for; it is empty when there is no such job.
func (s *State) Meeting(id string, m job.Meeting) string {
	if e := s.jobs[id]; e != nil {
		return e.state.Meeting(m)
	}
	return ""
}

// Live says that processes of an attempt of a job may be on a node. What else a node that is back runs of it must end.
func (s *State) Live(id, node string, unit, attempt int) bool {
	e := s.jobs[id]
	return e != nil && e.state.Live(node, unit, attempt)
}

// Weighs says that what a rank of a job has left behind can bear on what its failure means, as [job.State.Weighs] does. Of an event for which
// it does not, that can be left out before [State.Step].
func (s *State) Weighs(id string, ev job.Exited) bool {
	e := s.jobs[id]
	return e != nil && e.state.Weighs(ev)
}

// Forget drops a job that is finished. A job that is not stays, and so does a reservation until its jobs are forgotten.
func (s *State) Forget(id string) {
	if e := s.jobs[id]; e != nil && e.done {
		delete(s.jobs, id)
	}
}

// bySubmission are all jobs in the order of submission.
func (s *State) bySubmission() []*entry { return slices.SortedFunc(maps.Values(s.jobs), bySubmission) }

// Has says that jobs may have a node, or hold it.
func (s *State) Has(node string) bool { return s.nodes[node] != nil }
