package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/jobstate"
	"github.com/golaunch/golaunch/placement"
)

// State is the state of a cluster. Only one goroutine uses it.
type State struct {
	nodes map[string]*clusterNode
	jobs  map[string]*entry
	// onlyJob is the only job that the coordinator serves, or nil.
	onlyJob *entry
	// avoided has the nodes that jobs get only if no others suffice, each with the reason. Some of
	// these nodes may be absent.
	avoided map[string]string
	// submitted counts all jobs that were ever submitted. started counts the jobs that got their
	// first node.
	submitted, started int
	limits             Limits
	// used counts the GPUs that each user holds in each priority.
	used map[purse]int
	// yielding are the jobs that are being preempted, in the order in which they got notice.
	yielding []*entry
	queue    *queue
	// usable counts the nodes that jobs may get, and free the free GPUs on these nodes.
	usable, free int
	// dirty are the queues that must be served at the end of the step.
	dirty []*queue
	// spent has the time of nodes that was divided already, except the charges of known jobs.
	spent charge.Ledger
	out   Outcome `snapshot:"-"`
	// at is the time of the newest event.
	at time.Time `snapshot:"-"`
}

// purse is a user and a priority. A limit applies to all GPUs of a user in one priority together.
type purse struct {
	user     string
	priority Priority
}

// clusterNode is a node with the jobs that hold parts of it.
type clusterNode struct {
	// facts are the node as it was reported. free is the part of the node that no job holds.
	facts, free placement.Node
	drained     bool
	// holders are the jobs that hold a share of the node, in the order of submission.
	holders []*entry
	// counts says that State.usable counts the node. freeGPUs is how many of its GPUs State.free
	// counts.
	freeGPUs int
	counts   bool
	// kind is the kind of the node, and since is when its holders got their present shares.
	kind  string
	since time.Time
}

// entry is a job of the cluster.
type entry struct {
	Spec
	state *jobstate.State
	// seq is the job's place in the order of submission.
	seq int
	// queue is the queue in which the job may wait. For a reservation, inner is the queue of the
	// jobs within it.
	queue, inner *queue
	wait         wait
	// held has the job's shares of nodes, by node name. leaving are the nodes that the job must
	// give up.
	held    map[string]placement.Node
	leaving map[string]bool
	// gpus counts the GPUs that the job holds. least is how many GPUs its smallest number of ranks
	// needs. started is the job's place in the order in which jobs got their first node.
	gpus, least, started int
	// yields is the job that preempts this one, and until is when this job's ranks must have ended;
	// empty otherwise.
	yields *entry
	until  time.Time
	// charged has the job's charges by kind of node.
	charged map[string]charge.Time
	// ended says that the job itself has ended, while jobs within a reservation may still run. done
	// says that the job no longer holds anything.
	ended, done bool
}

// wait is the state of a job in its queue.
type wait struct {
	// queued says that the job waits. repair says that it also holds nodes, which are useless
	// without further ones.
	queued, repair bool
	// told is the reason for waiting that the job was told. behind is the job ahead of it in the
	// queue, if it waits because of that job.
	told   string
	behind *entry
	// tried says that there was no plan for the job as the first of its queue. The job then needs
	// at least nodes usable nodes and gpus free GPUs.
	tried       bool
	nodes, gpus int
	// skipped says that there was no plan for the job ahead of the first job of its queue. turn
	// says that the job's turn has come. ahead says that the turn of another job of the same user
	// and priority has come. over says that the job would take its user past a limit.
	skipped, turn, ahead, over bool
}

// queue has the jobs that wait for nodes of the cluster, or of one reservation.
type queue struct {
	reservation *entry
	// waiting are the waiting jobs in the order of their turns. open are the jobs of a reservation
	// that are not done.
	waiting, open []*entry
	// growing are jobs that run, or ran, on fewer nodes than they could use, in the order in which
	// they became due.
	growing []*entry
	// first is the job for which shadow was made. shadow has the nodes that this job will get, and
	// that other jobs must leave to it.
	first  *entry
	shadow map[string]bool
	// dirty says that the queue must be served. better says that nodes or GPUs were added or freed.
	dirty, better bool
}

// New returns a cluster without nodes and jobs.
func New() *State {
	return &State{
		nodes: map[string]*clusterNode{}, jobs: map[string]*entry{}, avoided: map[string]string{}, used: map[purse]int{}, queue: &queue{},
		spent: charge.NewLedger(),
	}
}

// add makes the entry of a job. A reservation starts no ranks, so its restart policy has no
// meaning.
func (s *State) add(spec Spec) *entry {
	s.submitted++
	spec.Priority = cmp.Or(spec.Priority, Interactive)
	e := &entry{Spec: spec, least: leastGPUs(spec.Job.Request), seq: s.submitted, queue: s.queue, held: map[string]placement.Node{}, leaving: map[string]bool{}, charged: map[string]charge.Time{}}
	if res := s.jobs[spec.Within]; res != nil {
		e.queue = res.inner
		res.inner.open = append(res.inner.open, e)
	}
	if spec.Reserve {
		e.inner = &queue{reservation: e}
		spec.Job.Restart = job.RestartJob
	}
	if spec.OnlyJob {
		s.onlyJob = e
	}
	e.state = jobstate.New(spec.Job)
	s.jobs[spec.Job.ID] = e
	return e
}

func bySubmission(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }

// byTurn is the order in which jobs of a queue are served.
func (s *State) byTurn(a, b *entry) int {
	if a.queue.reservation == nil {
		if order := cmp.Or(first(b.wait.over, a.wait.over), first(a.Priority.above(b.Priority), b.Priority.above(a.Priority))); order != 0 {
			return order
		}
	}
	if order := first(a.wait.repair, b.wait.repair); order != 0 || a.wait.repair || a.queue.reservation != nil {
		return cmp.Or(order, bySubmission(a, b))
	}
	return cmp.Or(first(a.wait.ahead, b.wait.ahead), cmp.Compare(s.used[a.purse()], s.used[b.purse()]), bySubmission(a, b))
}

// first orders two items by a property. If only one item has the property, that item comes first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (e *entry) purse() purse { return purse{e.User, e.Priority} }

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
