package cluster

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// ecc is what a rank prints when its GPU's memory fails.
const ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"

// giveBack records that a job gives back a node that was not drained.
func (m *sim) giveBack(r *record, ev job.Draining) error {
	if by, preempted := preemptor(ev); preempted {
		return m.preempted(r, m.job(by))
	}
	if _, asked := m.drained[ev.Node]; asked {
		return nil
	}
	for p := range r.runs {
		if p.node == ev.Node {
			return fmt.Errorf("it gives %s back while it runs there", ev.Node)
		}
	}
	r.gave++
	return nil
}

// checkExchange checks that a job exchanges excluded nodes just before its next attempt if others
// are free, and otherwise gives back no node. It checks that the job gets no node that it avoids
// while others suffice.
func (w *world) checkExchange(out Outcome, before map[string][]string) error {
	for _, r := range w.jobs {
		if r.gave > r.gifts {
			return fmt.Errorf("job %s gave %d nodes back and got %d", r.Job.ID, r.gave, r.gifts)
		}
		if r.gave > 0 {
			w.seen["exchanged"] = true
		}
		if err := w.checkAvoided(r, out); err != nil {
			return err
		}
	}
	for i, st := range out.Steps[:max(0, len(out.Steps)-1)] {
		left, leaves := st.Event.(job.Draining)
		next, joins := out.Steps[i+1].Event.(job.Joined)
		_, drained := w.drained[left.Node]
		if _, preempted := preemptor(left); preempted {
			continue
		}
		if leaves && joins && !drained && w.state.avoids(w.state.jobs[st.Job], next.Node.Name) {
			return fmt.Errorf("job %s gave %s back for %s, which is no better", st.Job, left.Node, next.Node.Name)
		}
	}
	for _, st := range out.Steps {
		if _, again := st.Event.(job.Elapsed); !again || st.Reason == "" || slices.Contains(before[w.job(st.Job).Within], st.Job) {
			continue
		}
		if err := w.checkKept(w.job(st.Job), before); err != nil {
			return err
		}
	}
	return nil
}

// checkKept checks that a gang with groups of fixed sizes keeps an excluded node only for a reason:
// there was no other node, or another job had to be repaired first. A preempted gang may have lost
// the node and got it back between two attempts.
func (w *world) checkKept(r *record, before map[string][]string) error {
	e := w.state.jobs[r.Job.ID]
	if r.moved || e.state.Phase() != job.Preparing || e.Job.Restart != job.RestartJob || byScore(e.Job.Request) {
		return nil
	}
	for _, id := range before[r.Within] {
		if len(w.job(id).held) > 0 {
			return nil
		}
	}
	sum := e.state.Summary()
	for _, n := range sum.Nodes {
		last, ran := r.known[place{n.Node.Name, 0}]
		if n.NodeRank < 0 || !e.state.Excludes(n.Node.Name) || !ran || last != sum.Attempt-1 {
			continue // the job got the node between the attempts, when there was no other
		}
		w.seen["kept"] = true
		want := r.Job.Request
		want.MinNodes, want.MaxNodes, want.Strategy = 1, 1, placement.StrictPack
		if !slices.Equal(want.PerNode, []int{placement.AllGPUs}) {
			want.PerNode = []int{len(n.Ranks)}
		}
		if free := w.offers(e, true); len(free) > 0 {
			if plan, err := placement.Solve(want, free); err == nil {
				return fmt.Errorf("job %s goes on with %s and could have %v", r.Job.ID, n.Node.Name, plan)
			}
		}
	}
	return nil
}

// checkAvoided checks that a gang's first nodes include no node that it avoids if other nodes
// suffice.
func (w *world) checkAvoided(r *record, out Outcome) error {
	e := w.state.jobs[r.Job.ID]
	if r.gifts == 0 || r.gifts != len(r.held) || r.gave > 0 || r.Backfill || e.Job.Restart != job.RestartJob {
		return nil
	}
	nodes, bad := w.offers(e, true), ""
	for _, st := range out.Steps {
		ev, ok := st.Event.(job.Joined)
		switch {
		case !ok || st.Job != r.Job.ID:
		case w.state.avoids(e, ev.Node.Name):
			bad = ev.Node.Name
		default:
			nodes = append(nodes, ev.Node)
		}
	}
	if bad == "" {
		return nil
	}
	w.seen["avoided"] = true
	if plan, err := placement.Solve(r.Job.Request, nodes); err == nil {
		return fmt.Errorf("job %s got %s, and could have %v", r.Job.ID, bad, plan)
	}
	return nil
}

// offers returns the free parts of the nodes that a job does not hold, according to the records. If
// avoiding is true, it omits nodes that the job avoids.
func (w *world) offers(e *entry, avoiding bool) (nodes []placement.Node) {
	for name, n := range w.nodes {
		_, drained := w.drained[name]
		if _, holds := e.held[name]; holds || drained || avoiding && w.state.avoids(e, name) {
			continue
		}
		offer := n
		if e.Within != "" {
			share, ok := w.job(e.Within).held[name]
			if offer = share; !ok {
				continue
			}
		}
		nodes = append(nodes, e.only(w.left(e, offer)))
	}
	return nodes
}

// readmit ends the exclusion of a job's nodes, or of one node in all jobs.
func (w *world) readmit() error {
	for _, r := range w.jobs {
		if seq := r.exclusion; seq > 0 && w.chance(2) {
			r.exclusion = 0
			return w.event(Happened{r.Job.ID, job.TimedOut{Kind: job.AlarmExclusion, Seq: seq}})
		}
	}
	for _, name := range sorted(w.state.avoided) {
		return w.event(Readmit{Node: name})
	}
	return nil
}
