package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// preemptor returns the job that preempts another job, according to an event of the other job.
func preemptor(ev job.Draining) (id string, preempted bool) {
	rest, preempted := strings.CutPrefix(ev.Why, "preempted by job ")
	id, _, _ = strings.Cut(rest, " ")
	return id, preempted
}

// preempted records that a job is being preempted.
func (m *sim) preempted(r, by *record) error {
	switch {
	case r.Reserve || r.Within != "" || by == nil || by.Within != "":
		return fmt.Errorf("preempted, though it is a reservation's, or by a job of one")
	case !by.priority().above(r.priority()):
		return fmt.Errorf("%s is preempted by %s", r.priority(), by.priority())
	case by.result != nil:
		return fmt.Errorf("preempted by a job that has ended")
	}
	r.yields = r.yields || !r.yielding
	r.yielding, r.moved = true, true
	return nil
}

func (r *record) priority() Priority {
	if r.Priority == "" {
		return Interactive
	}
	return r.Priority
}

// sharing makes users submit jobs of all priorities, under limits that change.
type sharing struct {
	on  bool
	rng *rand.Rand
}

func newSharing(seed uint64) sharing {
	return sharing{on: seed%8 == 3 || seed%8 == 5, rng: rand.New(rand.NewPCG(seed, 3))}
}

// ask gives a job a user and a priority.
func (s sharing) ask(spec *Spec) {
	if !s.on {
		return
	}
	spec.User = []string{"", "alice", "bob"}[s.rng.IntN(3)]
	spec.Job.DrainTime = time.Duration(s.rng.IntN(2)) * time.Minute
	if spec.Within == "" {
		spec.Priority = append([]Priority{"", Batch}, Priorities...)[s.rng.IntN(5)]
	}
}

// limits returns new limits, or no limits if none is true.
func (s sharing) limits(none bool) Limits {
	if none {
		return nil
	}
	l := Limits{}
	for _, user := range []string{AnyUser, "alice", "bob"} {
		l[user] = map[Priority]int{}
		for _, p := range Priorities {
			if s.rng.IntN(2) == 0 {
				l[user][p] = s.rng.IntN(7)
			}
		}
	}
	return l
}

// used counts the GPUs of a user in a priority, according to the records.
func (m *sim) used(user string, p Priority) (gpus int) {
	for _, r := range m.jobs {
		if r.Within == "" && r.User == user && r.priority() == p {
			for _, share := range r.held {
				gpus += len(share.GPUs)
			}
		}
	}
	return gpus
}

// most is a user's limit; false if there is none.
func (m *sim) most(user string, p Priority) (int, bool) {
	if n, ok := m.limits[user][p]; ok {
		return n, true
	}
	n, ok := m.limits["*"][p]
	return n, ok
}

// exceeds reports whether a job would take its user past a limit, according to the records.
func (w *world) exceeds(r *record) bool {
	most, limited := w.most(r.User, r.priority())
	if !limited || !r.Job.Request.GPU || r.Within != "" {
		return false
	}
	lacks := ranks(r.Job.Request, r.Job.Request.MinNodes)
	for _, share := range r.held {
		lacks -= len(share.GPUs)
	}
	lacks = max(1, lacks)
	if request, whole, ok := w.state.jobs[r.Job.ID].state.Wants(); ok && !whole {
		lacks = ranks(request, 1)
	}
	return w.used(r.User, r.priority())+lacks > most
}

// turns returns the jobs of the cluster's queue that no limit prevents from starting, in order.
func (w *world) turns() []string {
	var list []string
	for _, e := range w.state.queue.waiting {
		if !w.exceeds(w.job(e.Job.ID)) {
			list = append(list, e.Job.ID)
		} else {
			w.seen["limited"] = true
		}
	}
	return list
}

// checkSharing checks that no limit is passed, that higher priorities come first, and that only
// necessary preemptions are made.
func (w *world) checkSharing() error {
	turns := w.turns()
	for i, id := range turns[min(1, len(turns)):] {
		if w.job(id).priority().above(w.job(turns[i]).priority()) {
			return fmt.Errorf("job %s is behind job %s", id, turns[i])
		}
	}
	for _, r := range w.jobs {
		most, limited := w.most(r.User, r.priority())
		if slices.Equal(r.Job.Request.PerNode, []int{placement.AllGPUs}) {
			continue // the job began before the limit, and counts as one GPU for each node
		}
		if len(r.leaving) > 0 {
			continue // the job has got another node for a node that it still has to give up
		}
		if used := w.used(r.User, r.priority()); limited && r.gifts > 0 && r.gave == 0 && r.Within == "" && r.Job.Request.GPU && used > most {
			return fmt.Errorf("job %s got nodes, and %s has %d GPUs of %d in %s", r.Job.ID, r.User, used, most, r.priority())
		}
		if r.yields {
			w.seen["preempted"] = true
		}
	}
	if len(turns) == 0 {
		return nil
	}
	return w.checkPreempted(w.job(turns[0]))
}

// checkPreempted checks that jobs are preempted if and only if the first job of the queue would
// have room without all jobs of lower priorities. The first job must then have room once the
// preempted jobs are gone.
func (w *world) checkPreempted(head *record) error {
	goes := func(r *record) bool {
		_, ends := w.state.jobs[r.Job.ID].state.Result()
		return r.Within == "" && (r.yielding || ends)
	}
	may := func(r *record) bool {
		return goes(r) || r.Within == "" && !r.Reserve && head.priority().above(r.priority())
	}
	fits := w.fits(head, goes)
	if !fits && w.fits(head, may) {
		return fmt.Errorf("job %s waits, and no job is preempted for it", head.Job.ID)
	}
	for _, v := range w.jobs {
		e := w.state.jobs[v.Job.ID]
		if v.yields && v.yielding && e.yields != nil && e.yields.Job.ID == head.Job.ID && w.fits(head, func(r *record) bool { return r != v && goes(r) }) {
			return fmt.Errorf("job %s is preempted for job %s, which does not need that", v.Job.ID, head.Job.ID)
		}
	}
	return nil
}

// fits reports whether a job of the cluster has room once some other jobs have given up their
// nodes.
func (w *world) fits(r *record, gone func(*record) bool) bool {
	e := w.state.jobs[r.Job.ID]
	request, whole, _ := e.state.Wants()
	var nodes []placement.Node
	for name, n := range w.nodes {
		share, holds := e.held[name]
		_, drained := w.drained[name]
		switch {
		case e.leaving[name]:
		case holds && whole:
			nodes = append(nodes, share)
		case !holds && !drained:
			nodes = append(nodes, e.only(w.leftBy(e, n, func(r *record) bool { return !gone(r) })))
		}
	}
	_, err := placement.Solve(request, nodes)
	return err == nil
}

// left is the part of a node that a job can have, according to the records.
func (w *world) left(e *entry, n placement.Node) placement.Node {
	return w.leftBy(e, n, func(*record) bool { return true })
}

// checkPriorities checks that a job with new nodes did not overtake a job of a higher priority.
func (w *world) checkPriorities(r, head *record) error {
	if r.Within == "" && head.priority().above(r.priority()) && !r.Backfill {
		return fmt.Errorf("job %s (%s) got nodes before job %s (%s)", r.Job.ID, r.priority(), head.Job.ID, head.priority())
	}
	return nil
}

// later reports whether a job is always behind another one, because the same user submitted the
// other one before.
func (w *world) later(r, head *record) bool {
	if head.Within == "" && (head.priority() != r.priority() || head.User != r.User) {
		return head.priority().above(r.priority())
	}
	return slices.Index(w.jobs, head) < slices.Index(w.jobs, r)
}
