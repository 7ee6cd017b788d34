package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// Step is a step of a job, with the facts about it that a coordinator reports.
type Step struct {
	cluster.Step
	// Told says that the reason differs from the reason of the step before.
	Told bool
	// Ends says that the job ends with this step.
	Ends bool
	// Start describes the newest start, if the ranks run and the step has added something to the
	// description.
	Start *report.Start
}

// Outcome has the effects of an entry.
type Outcome struct {
	Steps []Step
	// Leave are drained nodes that no job holds any more.
	Leave []string
	// Armed are the new deadlines.
	Armed []TimerID
	// Forgotten are finished jobs that are no longer known.
	Forgotten []string
	// Stale says that the entry changed nothing, such as a report that an agent repeats. The entry
	// does not count and need not be kept.
	Stale bool
}

// Bounds on finished jobs: how many are known, and for how many the evidence of their failure is
// kept.
const (
	MaxEnded    = 1000
	maxEvidence = 100
)

// Apply applies the next entry. An entry that makes no sense changes nothing. The coordinator
// checks each entry before it writes it.
func (s *State) Apply(e Entry) Outcome {
	var o Outcome
	s.Index++
	switch {
	case e.Founded != nil:
		s.Epoch = e.Founded.Epoch
	case e.Admitted != nil:
		s.Members[e.Admitted.Node.Name] = *e.Admitted
		s.Capacity.Joined(e.At, e.Admitted.Node.Name, e.Admitted.Node.Labels[capacity.TagLabel])
	case e.Capacity != nil:
		s.Capacity.Apply(e.At, s.Epoch, e.Capacity)
	case e.Submitted != nil:
		j := &Record{Submission: *e.Submitted, Since: e.At, Nodes: map[string]bool{}}
		j.Clock.begin(e.At, report.PhaseNodes)
		s.Jobs[e.Submitted.Job.ID] = j
		s.step(e.At, cluster.Submitted{Spec: e.Submitted.Spec}, &o)
	default:
		s.happened(e, &o)
	}
	if o.Stale {
		s.Index--
	}
	return o
}

func (s *State) happened(e Entry, o *Outcome) {
	fired := false
	switch ev := e.Event.(type) {
	case cluster.Lost:
		m := s.Members[ev.Node]
		s.Capacity.Lost(e.At, ev.Node, m.Node.Labels[capacity.TagLabel], m.Drained)
		delete(s.Members, ev.Node)
		if s.Cluster.Drained(ev.Node) { // a person has dealt with the node
			s.readmit(e.At, ev.Node, o)
		}
	case cluster.Joined:
		ev.Kind = s.Capacity.KindOf(ev.Node.Labels)
		e.Event = ev
	case cluster.Freed:
		if m, there := s.Members[ev.Node]; there {
			m.Node.GPUs, _ = job.Freed(ev).Free(m.Node.GPUs)
			s.Members[ev.Node] = m
		}
	case cluster.Readmit:
		delete(s.Avoided, ev.Node)
		delete(s.Timers, TimerID{Of: ev.Node, Kind: readmission})
	case cluster.Drain:
		if m, there := s.Members[ev.Node]; there {
			m.Drained = true
			s.Members[ev.Node] = m
		}
		if ev.Leaves != nil {
			leaves := *ev.Leaves
			leaves.At = e.At
			ev.Leaves = &leaves
			e.Event = ev
		}
	case cluster.Happened:
		fired = s.expired(ev)
		ev.Event = dated(e.At, ev.Event)
		e.Event = ev
	default: // it concerns the cluster alone
	}
	s.step(e.At, e.Event, o)
	o.Stale = o.Stale && !fired
	if ev, joins := e.Event.(cluster.Joined); joins && s.Members[ev.Node.Name].Drained {
		s.step(e.At, cluster.Drain{Node: ev.Node.Name}, o)
	}
}

// dated adds the time to a checkpoint, to a request to stop, and to a failure if no agent says when
// it happened.
func dated(at time.Time, ev job.Event) job.Event {
	switch ev := ev.(type) {
	case job.Prepared:
		if ev.Port == 0 {
			ev.At = at
		}
		return ev
	case job.Reached:
		if ev.Err != "" || !ev.Unable.OK() {
			ev.At = at
		}
		return ev
	case job.Saved:
		ev.At = at
		return ev
	case job.Cancel:
		ev.At = at
		return ev
	default:
		return ev
	}
}

// readmit lets jobs use a node again like any other.
func (s *State) readmit(at time.Time, node string, o *Outcome) {
	if _, avoided := s.Avoided[node]; avoided {
		s.happened(Entry{At: at, Event: cluster.Readmit{Node: node}}, o)
	}
}

func (s *State) step(at time.Time, ev cluster.Event, o *Outcome) {
	out := s.Cluster.Step(at, ev)
	o.Leave, o.Stale = append(o.Leave, out.Leave...), out.Stale
	for _, st := range out.Steps {
		o.Steps = append(o.Steps, s.stepped(at, st, o))
	}
}

// stepped records a step of a job, and returns a description of it.
func (s *State) stepped(at time.Time, st cluster.Step, o *Outcome) Step {
	j := s.Jobs[st.Job]
	if len(st.Changes) > 0 {
		j.Ledger.Take(at, st.Changes)
	}
	var start *report.Start
	if j.Job.Gang() && j.Clock.take(at, st) {
		start = j.Clock.report()
	}
	if ev, gets := st.Event.(job.Joined); gets {
		j.Nodes[ev.Node.Name] = true
	}
	for i, a := range st.Actions {
		switch a := a.(type) {
		case job.Wait:
			s.arm(at, TimerID{Of: st.Job, Kind: attempt, Number: a.Unit}, j.wait(a), a.Attempt, o)
		case job.Alarm:
			s.alarm(at, j, a, o)
		case job.Quarantine:
			s.avoid(at, j, a, o)
		case job.Finish:
			a.Result.Goodput, a.Result.Saves = j.Goodput(at), s.Saves(j, at)
			a.Result.Start = j.Start()
			j.Result, st.Actions[i] = &a.Result, a
		default: // orders to nodes change nothing here
		}
	}
	if st.Granted != nil {
		j.Granted = st.Granted
	}
	told := st.Reason != "" && st.Reason != j.Reason
	if told {
		j.Reason = st.Reason
		j.remember(at, st.Actions, st.Changes)
	}
	ends := j.Result != nil && j.Over.IsZero()
	if ends {
		s.conclude(at, j, o)
	}
	return Step{st, told, ends, start}
}

// avoid makes all jobs avoid a node whose hardware failed in one job, for as long as that job
// excludes the node.
func (s *State) avoid(at time.Time, j *Record, a job.Quarantine, o *Outcome) {
	if !j.OnlyJob {
		s.Avoided[a.Node] = at.Add(j.Job.ExcludeFor)
		s.arm(at, TimerID{Of: a.Node, Kind: readmission}, j.Job.ExcludeFor, 0, o)
	}
}

// conclude keeps a finished job, and forgets the oldest finished job if there are too many.
func (s *State) conclude(at time.Time, j *Record, o *Outcome) {
	j.Over = at
	for id := range s.Timers {
		if id.Of == j.Job.ID && id.Kind != readmission {
			delete(s.Timers, id)
		}
	}
	s.Ended = append(s.Ended, j.Job.ID)
	if n := len(s.Ended) - maxEvidence; n > 0 {
		s.Jobs[s.Ended[n-1]].summarize()
	}
	for len(s.Ended) > MaxEnded {
		id := s.Ended[0]
		s.Ended = s.Ended[1:]
		delete(s.Jobs, id)
		s.Cluster.Forget(id)
		o.Forgotten = append(o.Forgotten, id)
	}
}

// summarize drops the evidence of a job's failure.
func (j *Record) summarize() {
	j.History = slices.Clone(j.History[max(0, len(j.History)-maxSummary):])
	if j.Result.Cause == nil {
		return
	}
	cause := *j.Result.Cause
	cause.Tail, cause.Traceback, cause.Kernel = "", "", ""
	result := *j.Result
	result.Cause = &cause
	j.Result = &result
}

// Began returns the first entry of a log.
func Began(at time.Time, epoch string) Entry {
	return Entry{At: at, Founded: &Founded{Format: Format, Epoch: epoch}}
}

// Replay returns the state after a snapshot, which may be nil, and the entries that follow it.
// Replay calls heard, if not nil, with the effects of each entry.
func Replay(snapshot []byte, entries []Entry, heard func(Entry, Outcome)) (*State, error) {
	s := New()
	if snapshot != nil {
		var err error
		if s, err = Restore(snapshot); err != nil {
			return nil, err
		}
	}
	for i, e := range entries {
		first := i == 0 && snapshot == nil
		switch {
		case first != (e.Founded != nil):
			return nil, fmt.Errorf("entry %d of the log is out of place", i)
		case first && e.Founded.Format != Format:
			return nil, ErrVersion
		}
		o := s.Apply(e)
		if heard != nil {
			heard(e, o)
		}
	}
	return s, nil
}
