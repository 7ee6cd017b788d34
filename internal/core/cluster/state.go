package cluster

import (
	"cmp"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// State is a cluster as it stands. One goroutine owns it.
type State struct {
	nodes map[string]*node
	jobs  map[string]*entry
	// sole is the job for which alone the coordinator exists, if there is one.
	sole *entry
	// shunned says why nodes are given only if others will not do, also of nodes that are not there.
	shunned map[string]string
	// submitted counts the jobs there ever were.
	submitted int
	queue     *queue
	// usable is the number of nodes that jobs may be given, and free that of the GPUs on them that nobody holds.
	usable, free int
	// dirty are the queues in which something may have become possible.
	dirty []*queue
	out   Outcome `snapshot:"-"`
}

// node is a machine of the cluster.
type node struct {
	// facts are as the node told them, and free is the same less what jobs hold.
	facts, free placement.Node
	drained     bool
	// holders are the jobs that hold something here, in the order of submission.
	holders []*entry
	// spare is the number of free GPUs that count for the cluster, and counts says that the node does.
	spare  int
	counts bool
}

// entry is a job of the cluster.
type entry struct {
	Spec
	state *job.State
	seq   int
	// queue is where it waits when it does, and waits says so; inner is the queue of the jobs within it, if it is a reservation.
	queue, inner *queue
	waits        bool
	// repair says of a job that waits that it holds nodes which are of no use to it without others.
	repair bool
	// held is what it was given, by node name, and leaving are the nodes that it is to give up.
	held    map[string]placement.Node
	leaving map[string]bool
	// told is why it waits, and behind the job before it in the queue, if that is why.
	told   string
	behind *entry
	// tried says that there was no plan for it as the first of its queue; it then needs nodes and GPUs, no fewer, to be usable.
	tried       bool
	nodes, gpus int
	// passed says that there was no plan for it past the first of its queue.
	passed bool
	// ended says that the job's own end has come; a reservation's jobs may then still run. done that it holds nothing any more.
	ended, done bool
}

// queue has the jobs that wait for nodes of the cluster, or of one reservation.
type queue struct {
	reservation *entry
	// waiting are in the order of their turns, and open the jobs of a reservation that are not done.
	waiting, open []*entry
	// growing are jobs that run, or did, on fewer nodes than their most, in the order in which that was for long enough.
	growing []*entry
	// first is the job that keeps the nodes of its shadow from others.
	first  *entry
	shadow map[string]bool
	// dirty says that the queue is to be served, better that something came or was freed.
	dirty, better bool
}

// New returns a cluster without nodes and jobs.
func New() *State {
	return &State{nodes: map[string]*node{}, jobs: map[string]*entry{}, shunned: map[string]string{}, queue: &queue{}}
}

// add makes the entry of a job. A reservation starts no ranks: its restart policy means nothing.
func (s *State) add(spec Spec) *entry {
	s.submitted++
	e := &entry{Spec: spec, seq: s.submitted, queue: s.queue, held: map[string]placement.Node{}, leaving: map[string]bool{}}
	if res := s.jobs[spec.Within]; res != nil {
		e.queue = res.inner
		res.inner.open = append(res.inner.open, e)
	}
	if spec.Reserve {
		e.inner = &queue{reservation: e}
		spec.Job.Restart = job.RestartJob
	}
	if spec.Sole {
		s.sole = e
	}
	e.state = job.New(spec.Job)
	s.jobs[spec.Job.ID] = e
	return e
}

func bySubmission(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }

// byTurn has jobs to be repaired first.
func byTurn(a, b *entry) int {
	switch {
	case a.repair == b.repair:
		return bySubmission(a, b)
	case a.repair:
		return -1
	}
	return 1
}

func insert(list []*entry, e *entry, order func(a, b *entry) int) []*entry {
	i, there := slices.BinarySearchFunc(list, e, order)
	if there {
		return list
	}
	return slices.Insert(list, i, e)
}

func remove(list []*entry, e *entry, order func(a, b *entry) int) []*entry {
	i, there := slices.BinarySearchFunc(list, e, order)
	if !there {
		return list
	}
	return slices.Delete(list, i, i+1)
}
