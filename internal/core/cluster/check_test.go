package cluster

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// check compares an outcome with the rules.
func (w *world) check(out Outcome) error {
	waiting := map[string][]string{}
	for _, j := range w.state.Jobs() {
		if j.Waits != "" {
			waiting[j.Spec.Within] = append(waiting[j.Spec.Within], j.Spec.Job.ID)
			w.seen["waited"] = true
		}
		if err := w.checkJob(j); err != nil {
			return fmt.Errorf("job %s: %w", j.Spec.Job.ID, err)
		}
	}
	for _, list := range waiting {
		slices.SortStableFunc(list, func(a, b string) int { return w.turn(a) - w.turn(b) })
	}
	if w.sharing.on {
		if waiting[""] = w.turns(); len(waiting[""]) == 0 {
			delete(waiting, "")
		}
		if err := w.checkSharing(); err != nil {
			return err
		}
		if slices.ContainsFunc(w.jobs, func(r *record) bool { return r.yields }) {
			clear(w.taken) // the first job will get other nodes
		}
	}
	for _, err := range []error{w.checkNodes(), w.checkCounts(), w.checkCharges(), w.checkOrder(out, waiting), w.checkFeasible(waiting), w.checkExchange(out, w.waited)} {
		if err != nil {
			return err
		}
	}
	for within, list := range waiting {
		if old := w.waited[within]; len(old) == 0 || old[0] != list[0] {
			delete(w.taken, within)
		}
	}
	w.waited = waiting
	if len(w.state.avoided) > 0 {
		w.seen["quarantined"] = true
	}
	if len(out.Leave) > 0 {
		w.seen["left"] = true
	}
	for name, gone := range w.drained {
		if !gone && len(w.holders(name)) == 0 {
			return fmt.Errorf("%s is drained, free, and was not let go", name)
		}
	}
	return nil
}

// turn orders jobs. It is 0 for jobs that hold nodes, because these jobs are served first, and 1
// for others.
func (w *world) turn(id string) int {
	if len(w.job(id).held) > 0 {
		return 0
	}
	return 1
}

// checkJob checks that a job is in the queue if and only if it lacks nodes, that it knows why, and
// that its phase agrees.
func (w *world) checkJob(j JobSummary) error {
	r, e := w.job(j.Spec.Job.ID), w.state.jobs[j.Spec.Job.ID]
	_, whole, wants := e.state.Wants()
	switch {
	case r.result != nil:
		if !e.done || len(e.held) > 0 || e.wait.queued || j.Summary.Phase != job.Finished {
			return fmt.Errorf("ended, but %+v", j)
		}
		w.seen[map[bool]string{true: "success", false: "failure"}[r.result.Code == 0]] = true
		return nil
	case j.Summary.Waits == "":
		return fmt.Errorf("does not know what it waits for")
	case e.wait.queued && (!wants || e.wait.told == "" || r.told != e.wait.told):
		return fmt.Errorf("waits in the queue, wants %v, got the reason %q, has the reason %q", wants, r.told, e.wait.told)
	case !e.wait.queued && r.yielding:
	case !e.wait.queued && wants && (!whole || j.Summary.Phase == job.Gathering) && !e.ended:
		return fmt.Errorf("lacks nodes (%s) and is not in the queue", j.Summary.Waits)
	}
	if r.granted != nil {
		w.seen["reservation"] = true
	}
	if !reflect.DeepEqual(slices.Sorted(maps.Keys(r.held)), sorted(e.held)) && len(r.held)+len(e.held) > 0 {
		return fmt.Errorf("holds %v, was given %v", sorted(e.held), sorted(r.held))
	}
	return nil
}

// checkNodes checks that no two jobs hold the same GPU, according to the records of the steps.
func (w *world) checkNodes() error {
	for name := range w.nodes {
		users, cpus := map[string]int{}, map[string]int{}
		for _, r := range w.holders(name) {
			limit := 1
			if r.Within != "" {
				res := w.job(r.Within)
				limit = max(1, res.Colocated)
				if _, ok := res.held[name]; !ok {
					return fmt.Errorf("job %s holds %s, which its reservation does not", r.Job.ID, name)
				}
			}
			for _, g := range r.held[name].GPUs {
				key := fmt.Sprint(r.Within, "/", g.Index)
				if users[key]++; users[key] > limit {
					return fmt.Errorf("gpu %d of %s is held %d times", g.Index, name, users[key])
				}
				if users[key] > 1 {
					w.seen["shared"] = true
				}
				if r.GPUs != nil && !slices.Contains(r.GPUs, g.Index) || r.Within != "" && !has(w.job(r.Within).held[name].GPUs, g.Index) {
					return fmt.Errorf("job %s may not have gpu %d of %s", r.Job.ID, g.Index, name)
				}
			}
			if r.Job.Request.CPUs > 0 && r.Within == "" {
				cpus[r.Within] += r.held[name].CPUs
			}
		}
		if all := w.nodes[name].CPUs; all > 0 && cpus[""] > all {
			return fmt.Errorf("%d of the %d CPUs of %s are held", cpus[""], all, name)
		}
	}
	return nil
}

// checkCounts compares the counts of the state with what it counts itself.
func (w *world) checkCounts() error {
	for p, gpus := range w.state.used {
		if gpus != w.used(p.user, p.priority) {
			return fmt.Errorf("%d GPUs of %v are counted as %d", w.used(p.user, p.priority), p, gpus)
		}
	}
	usable, free := 0, 0
	for _, n := range w.state.Nodes() {
		if n.Drained {
			continue
		}
		usable++
		for _, g := range n.GPUs {
			if g.HeldBy == "" {
				free++
			}
		}
	}
	if usable != w.state.usable || free != w.state.free {
		return fmt.Errorf("%d nodes with %d free GPUs are counted as %d with %d", usable, free, w.state.usable, w.state.free)
	}
	return nil
}

// checkCharges checks that the time charged to jobs and the idle time are the time of all nodes,
// and that jobs are charged for the GPUs that they have held.
func (w *world) checkCharges() error {
	jobs, others := w.state.Charged(w.at)
	sums := others.Idle
	for _, r := range w.jobs {
		gpus := int64(0)
		for kind, x := range jobs[r.Job.ID] {
			if x.Nodes < 0 || x.GPUs < 0 {
				return fmt.Errorf("job %s is charged for %v of %s", r.Job.ID, x, kind)
			}
			gpus += x.GPUs
			x.Add(sums[kind])
			sums[kind] = x
		}
		switch {
		case r.Within != "" && len(jobs[r.Job.ID]) > 0:
			return fmt.Errorf("job %s is charged for what its reservation holds", r.Job.ID)
		case r.Within == "" && (gpus > r.gpuTime || gpus != r.gpuTime && !w.turned):
			return fmt.Errorf("job %s is charged for %d of %d ms of GPUs", r.Job.ID, gpus, r.gpuTime)
		}
		if gpus > 0 {
			w.seen["charged"] = true
		}
	}
	for kind, passed := range w.passed {
		sum := sums[kind]
		if sum.Nodes > passed.Nodes || sum.GPUs > passed.GPUs || sum != passed && !w.turned {
			return fmt.Errorf("%v of %v of %s are charged or idle", sum, passed, kind)
		}
	}
	return nil
}

// checkOrder checks that no job waited ahead of a job that got nodes. If jobs with backfill got
// nodes, it checks that the first job lost nothing.
func (w *world) checkOrder(out Outcome, waiting map[string][]string) error {
	for i, r := range w.jobs {
		list := waiting[r.Within]
		if r.gifts == 0 || r.gave > 0 {
			continue
		}
		if r.steps > 0 && len(r.runs) > 0 {
			w.seen["repaired"] = true
		}
		if len(list) == 0 || slices.IndexFunc(w.jobs, func(o *record) bool { return o.Job.ID == list[0] }) >= i && !w.sharing.on {
			continue
		}
		head := w.job(list[0])
		if w.sharing.on {
			if err := w.checkPriorities(r, head); err != nil {
				return err
			}
			if head == r || !w.later(r, head) {
				continue
			}
		}
		if len(r.held) > r.gifts && len(head.held) == head.gifts {
			continue
		}
		if !r.Backfill {
			return fmt.Errorf("job %s got nodes past job %s", r.Job.ID, list[0])
		}
		w.seen["passed"] = true
		if old := w.waited[r.Within]; len(old) == 0 || old[0] != list[0] || w.taken[r.Within] == nil {
			w.taken[r.Within] = map[string]bool{}
		}
		for _, st := range out.Steps {
			if ev, ok := st.Event.(job.Joined); ok && st.Job == r.Job.ID {
				w.taken[r.Within][ev.Node.Name] = true
			}
		}
		if err := w.checkHead(r.Within, list[0]); err != nil {
			return fmt.Errorf("job %s took what job %s needs: %w", r.Job.ID, list[0], err)
		}
	}
	return nil
}

// checkHead checks that a job that could run in an empty cluster could do so without the nodes that
// later jobs got.
func (w *world) checkHead(within, id string) error {
	e := w.state.jobs[id]
	r, whole, _ := e.state.Wants()
	var all, left []placement.Node
	for name, n := range w.nodes {
		bare := n
		if _, drained := w.drained[name]; drained {
			bare.Name = ""
		}
		if within != "" {
			share, ok := w.job(within).held[name]
			if bare = share; !ok {
				continue
			}
			if _, drained := w.drained[name]; drained {
				bare.Name = ""
			}
		}
		share, holds := e.held[name]
		switch {
		case e.leaving[name]:
		case holds && whole:
			all, left = append(all, share), append(left, share)
		case holds || bare.Name == "":
		default:
			all = append(all, e.only(bare))
			if !w.taken[within][name] {
				left = append(left, e.only(bare))
			}
		}
	}
	_, never := placement.Solve(r, all)
	_, now := placement.Solve(r, left)
	if never != nil {
		delete(w.taken, within)
		now = nil
	}
	return now
}

// checkFeasible checks that no waiting job could start. The first job may use any free GPUs, and a
// job with backfill the free GPUs that are not kept for earlier jobs.
func (w *world) checkFeasible(waiting map[string][]string) error {
	for _, list := range waiting {
		for i, id := range list {
			e := w.state.jobs[id]
			var kept map[string]bool
			if i > 0 {
				if kept = e.queue.shadow; !e.Backfill {
					continue
				}
			}
			if err := w.infeasible(e, kept); err != nil {
				return fmt.Errorf("job %s waits (%s): %w", id, e.wait.told, err)
			}
		}
	}
	return nil
}

// infeasible plans a job on the nodes that the records leave free. The error says why there is no
// room.
func (w *world) infeasible(e *entry, kept map[string]bool) error {
	r, whole, _ := e.state.Wants()
	var nodes []placement.Node
	for name, n := range w.nodes {
		share, holds := e.held[name]
		_, drained := w.drained[name]
		offer := n
		if e.Within != "" {
			share, ok := w.job(e.Within).held[name]
			if offer = share; !ok {
				continue
			}
		}
		if e.leaving[name] {
			continue
		} else if holds && whole {
			nodes = append(nodes, share)
		} else if !holds && !drained && !kept[name] {
			nodes = append(nodes, e.only(w.left(e, offer)))
		}
	}
	if plan, err := placement.Solve(r, nodes); err == nil {
		return fmt.Errorf("it could have %v", plan)
	}
	return nil
}

// leftBy returns the part of a node that a job can have if other jobs hold the given shares,
// according to the records.
func (w *world) leftBy(e *entry, n placement.Node, holds func(*record) bool) placement.Node {
	limit := e.queue.reservation.colocated()
	n.GPUs = slices.Clone(n.GPUs)
	users := map[int]int{}
	cpus := n.CPUs * limit
	for _, r := range w.holders(n.Name) {
		if r.Within != e.Within || !holds(r) {
			continue
		}
		for _, g := range r.held[n.Name].GPUs {
			users[g.Index]++
		}
		if r.Job.Request.CPUs > 0 {
			cpus -= r.held[n.Name].CPUs
		}
	}
	for i := range n.GPUs {
		if users[n.GPUs[i].Index] >= limit {
			n.GPUs[i].HeldBy = "another"
		}
	}
	if n.CPUs > 0 {
		n.CPUs = cpus
		if cpus <= 0 {
			n.CPUs = -1
		}
	}
	return n
}
