package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/jobstate"
	"github.com/golaunch/golaunch/placement"
)

// State is a cluster as it stands. Only one goroutine uses it.
type State struct {
	nodes map[string]*clusterNode
	jobs  map[string]*entry
	// onlyJob is the job for which alone the coordinator exists, or nil.
	onlyJob *entry
	// avoided says why nodes are given only if others will not do. It also has nodes that are not
	// there.
	avoided map[string]string
	// submitted counts all jobs that were ever submitted, and started how often one got its first node.
	submitted, started int
	limits             Limits
	// used counts the GPUs that each user holds in each priority.
	used map[purse]int
	// yielding are the jobs that are being preempted, in the order in which they were told.
	yielding []*entry
	queue    *queue
	// usable counts the nodes that jobs may be given, free the free GPUs on them.
	usable, free int
	// dirty are the queues in which something may have become possible.
	dirty []*queue
	out   Outcome `snapshot:"-"`
	// at is the time of the newest event.
	at time.Time `snapshot:"-"`
}

// purse is that from which jobs of a user and a priority take GPUs.
type purse struct {
	user     string
	priority Priority
}

// clusterNode is a node with what jobs hold of it.
type clusterNode struct {
	// facts are as the node reported them, free is what jobs do not hold of them.
	facts, free placement.Node
	drained     bool
	// holders are the jobs that hold something here, in the order of submission.
	holders []*entry
	// freeGPUs is the number of free GPUs that count for the cluster; counts says that the node
	// does.
	freeGPUs int
	counts   bool
}

// entry is a job of the cluster.
type entry struct {
	Spec
	state *jobstate.State
	// seq is its place in the order of submission.
	seq int
	// queue is where it waits when it does; inner is the queue of the jobs within it, if it is a
	// reservation.
	queue, inner *queue
	wait         wait
	// held is what it was given, by node name; leaving are the nodes that it is to give up.
	held    map[string]placement.Node
	leaving map[string]bool
	// gpus counts the GPUs that it holds, and least what its fewest ranks need. started is the order in
	// which jobs got their first node.
	gpus, least, started int
	// yields is the job that preempts this one, and until is by when its ranks end; empty otherwise.
	yields *entry
	until  time.Time
	// ended says that the job itself has ended, while jobs within a reservation may still run. done
	// says that it holds nothing any more.
	ended, done bool
}

// wait is a job's place in its queue.
type wait struct {
	// queued says that the job waits. repair says that it also holds nodes, which are of no use
	// without others.
	queued, repair bool
	// told is why it waits; behind is the job before it in the queue, if that is why.
	told   string
	behind *entry
	// tried says that there was no plan for it as the first of its queue. It then needs at least
	// that many usable nodes and free GPUs.
	tried       bool
	nodes, gpus int
	// skipped says that there was no plan for it past the first of its queue. turn says that its turn
	// has come, and ahead that it has for a job of the same user and priority. over says that it would
	// take its user past a limit.
	skipped, turn, ahead, over bool
}

func (w *wait) begin(repair bool)      { *w = wait{queued: true, repair: repair} }
func (w *wait) end()                   { w.queued = false }
func (w *wait) tell(why string)        { w.told = why }
func (w *wait) tellBehind(e *entry)    { w.behind = e }
func (w *wait) try(tried bool)         { w.tried = tried }
func (w *wait) skip(skipped bool)      { w.skipped = skipped }
func (w *wait) takeTurn()              { w.turn = true }
func (w *wait) stand(ahead, over bool) { w.ahead, w.over = ahead, over }
func (w *wait) need(nodes, gpus int)   { w.nodes, w.gpus = nodes, gpus }

// queue has the jobs that wait for nodes of the cluster, or of one reservation.
type queue struct {
	reservation *entry
	// waiting are in the order of their turns; open are the jobs of a reservation that are not
	// done.
	waiting, open []*entry
	// growing are jobs that run, or did, on fewer nodes than their most, in the order in which they
	// became due.
	growing []*entry
	// first is the job whose shadow keeps nodes from others: those that it is going to get.
	first  *entry
	shadow map[string]bool
	// dirty says that the queue is to be served, better that something came or was freed.
	dirty, better bool
}

// New returns a cluster without nodes and jobs.
func New() *State {
	return &State{
		nodes: map[string]*clusterNode{}, jobs: map[string]*entry{}, avoided: map[string]string{}, used: map[purse]int{}, queue: &queue{},
	}
}

// add makes the entry of a job. A reservation starts no ranks: its restart policy means nothing.
func (s *State) add(spec Spec) *entry {
	s.submitted++
	spec.Priority = cmp.Or(spec.Priority, Interactive)
	e := &entry{Spec: spec, least: leastGPUs(spec.Job.Request), seq: s.submitted, queue: s.queue, held: map[string]placement.Node{}, leaving: map[string]bool{}}
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

// first is the order of two of which only one has something.
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
