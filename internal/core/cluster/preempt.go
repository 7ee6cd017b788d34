package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// maxYield bounds the time that the ranks of a preempted job have to get ready.
const maxYield = 10 * time.Minute

// maxSpared bounds how often preempt tries to do without one of the victims, the last victim first.
// Each try costs a plan.
const maxSpared = 16

// preempt makes jobs of lower priorities give up their nodes to the first job of the queue, for
// which there is no other plan. It does nothing if the nodes that are already being given up
// suffice, or if even all nodes would not suffice. It reports whether it preempted any job. It
// costs O(n log n log j) for n nodes and j jobs.
func (s *State) preempt(e *entry) bool {
	if e.queue.reservation != nil || e.wait.nodes > s.usable {
		return false
	}
	victims, gone := s.victims(e)
	gpus := s.free
	for _, v := range victims {
		gpus += v.gpus
	}
	for v := range gone {
		gpus += v.gpus
	}
	if len(victims) == 0 || e.wait.gpus > gpus {
		return false
	}
	without := func(victims []*entry) (placement.Plan, bool) {
		all := maps.Clone(gone)
		for _, v := range victims {
			all[v] = true
		}
		return s.planWithout(e, all)
	}
	if _, ok := without(nil); ok {
		return false
	}
	n := sort.Search(len(victims), func(i int) bool {
		_, ok := without(victims[:i+1])
		return ok
	})
	if n == len(victims) {
		return false
	}
	plan, _ := without(victims[:n+1])
	victims = s.needed(plan, victims[:n+1])
	for i, tries := len(victims)-1, 0; i >= 0 && tries < maxSpared; i, tries = i-1, tries+1 {
		rest := slices.Delete(slices.Clone(victims), i, i+1)
		if other, ok := without(rest); ok {
			plan, victims = other, rest
		}
	}
	victims = s.needed(plan, victims)
	e.queue.first, e.queue.shadow = e, map[string]bool{}
	for _, g := range plan.Groups {
		e.queue.shadow[g.Node.Name] = true
	}
	for _, v := range victims {
		s.yield(v, e)
	}
	return true
}

// victims returns the jobs that may be preempted, in order: the lowest priority first and, within a
// priority, the job that started last, because it loses the least (Slurm's preempt_youngest_first).
// gone has the jobs that give up their nodes in any case.
func (s *State) victims(e *entry) (victims []*entry, gone map[*entry]bool) {
	gone = map[*entry]bool{}
	for _, v := range s.jobs {
		if v.queue.reservation != nil || v.Reserve || len(v.held) == 0 {
			continue
		}
		_, ends := v.state.Result()
		switch {
		case ends || v.yields != nil:
			gone[v] = true
		case e.Priority.above(v.Priority):
			victims = append(victims, v)
		}
	}
	slices.SortFunc(victims, func(a, b *entry) int {
		return cmp.Or(first(b.Priority.above(a.Priority), a.Priority.above(b.Priority)), cmp.Compare(b.started, a.started), bySubmission(b, a))
	})
	return victims, gone
}

// planWithout returns a plan for a job as if some other jobs held nothing.
func (s *State) planWithout(e *entry, gone map[*entry]bool) (placement.Plan, bool) {
	r, whole, _ := e.state.Wants()
	r = s.capped(e, r, whole)
	all := s.candidates(e, whole, nil, 1, false)
	for i := range all {
		n := s.nodes[all[i].Name]
		if _, holds := e.held[all[i].Name]; !holds && slices.ContainsFunc(n.holders, func(h *entry) bool { return gone[h] }) {
			all[i] = e.only(n.offer(n.facts, nil, 1, gone))
		}
	}
	plan, err := placement.Solve(r, all)
	return plan, err == nil
}

// needed returns the jobs that have a share of a plan's nodes, in the given order.
func (s *State) needed(plan placement.Plan, jobs []*entry) []*entry {
	on := map[*entry]bool{}
	for _, g := range plan.Groups {
		for _, h := range s.nodes[g.Node.Name].holders {
			on[h] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(e *entry) bool { return !on[e] })
}

// yield makes a job give up all its nodes to another job.
func (s *State) yield(e, to *entry) {
	s.leave(e)
	within := min(e.Job.DrainTime, maxYield)
	e.yields, e.until = to, s.at.Add(within)
	s.yielding = append(s.yielding, e)
	for _, name := range sorted(e.held) {
		if _, holds := e.held[name]; holds && !e.ended {
			s.step(e, job.Draining{Node: name, Within: within, Why: "preempted by " + to.name(e), At: s.at})
		}
	}
}

// stopYielding notes that a job has given up all its nodes.
func (s *State) stopYielding(e *entry) {
	e.yields, e.until = nil, time.Time{}
	s.yielding = slices.DeleteFunc(s.yielding, func(o *entry) bool { return o == e })
}

// maxAwaited bounds the jobs that a status names as awaited by another job.
const maxAwaited = 16

// awaited returns the jobs that are being preempted for another job.
func (s *State) awaited(e *entry) (all []report.Awaited) {
	for _, v := range s.yielding {
		if v.yields == e && len(all) < maxAwaited {
			all = append(all, report.Awaited{Job: v.Job.ID, User: v.User, Priority: string(v.Priority), Preempted: true, Until: v.until})
		}
	}
	return all
}

// preempting names the preempted jobs for which another job waits; empty if there are none.
func (s *State) preempting(e *entry) string {
	var names []string
	for _, a := range s.awaited(e) {
		names = append(names, a.String())
	}
	if len(names) == 0 {
		return ""
	}
	return "waiting for " + strings.Join(names, " and ")
}

// leastGPUs is how many GPUs a job needs for its smallest number of ranks.
func leastGPUs(r placement.Request) int {
	return gpus(r, r.MinNodes)
}

// gpus is the least number of GPUs that a request needs on that many nodes; 0 for CPU ranks.
func gpus(r placement.Request, nodes int) int {
	if len(r.PerNode) == 1 {
		return nodes * r.Takes(max(1, r.PerNode[0]))
	}
	sum := 0
	for _, n := range r.PerNode[:nodes] {
		sum += r.Takes(n)
	}
	return sum
}

// allowed is how many GPUs a user may hold in a priority; false if there is no limit.
func (s *State) allowed(p purse) (gpus int, limited bool) {
	if gpus, limited = s.limits[p.user][p.priority]; !limited {
		gpus, limited = s.limits[AnyUser][p.priority]
	}
	return gpus, limited
}

// exceeds reports whether the fewest further GPUs that a waiting job needs would take its user past
// a limit.
func (s *State) exceeds(e *entry) bool {
	most, limited := s.allowed(e.purse())
	return limited && e.Job.Request.GPU && s.used[e.purse()]+s.lacks(e) > most
}

// lacks is how many more GPUs, at least, a waiting job needs.
func (s *State) lacks(e *entry) int {
	if !e.Job.Gang() {
		if r, whole, ok := e.state.Wants(); ok && !whole {
			return gpus(r, r.MinNodes)
		}
	}
	return max(1, e.least-e.gpus)
}

// limit names the limit that a job waits for.
func (s *State) limit(e *entry) string {
	most, _ := s.allowed(e.purse())
	return fmt.Sprintf("waiting for the limit of %s in %s: %d of %s are in use, and it needs %d", owner(e.User), e.Priority,
		s.used[e.purse()], words.Count(most, "GPU"), s.lacks(e))
}

func owner(user string) string { return cmp.Or(user, "unknown users") }

// capped reduces the number of nodes of a request so that the job's user stays within the limit,
// but not below the fewest nodes that the job must have.
func (s *State) capped(e *entry, r placement.Request, whole bool) placement.Request {
	most, limited := s.allowed(e.purse())
	if !limited || !r.GPU || e.queue.reservation != nil {
		return r
	}
	room := most - s.used[e.purse()]
	if whole {
		room += e.gpus
	}
	for r.MaxNodes > r.MinNodes && gpus(r, r.MaxNodes) > room {
		r.MaxNodes--
	}
	if len(r.PerNode) > 1 {
		r.PerNode = r.PerNode[:r.MaxNodes]
	}
	return r
}
