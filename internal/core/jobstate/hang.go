package jobstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/jobstate/internal/meeting"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// ranks returns all ranks of the job and their processes. It costs O(nodes).
func (s *State) ranks() meeting.Ranks {
	groups := make([]placement.Group, len(s.plan.slots))
	for i, sl := range s.plan.slots {
		groups[i] = sl.Group
	}
	return meeting.Ranks{Groups: groups, PIDs: s.progress.pids, Done: s.progress.done}
}

// met records how the start of a gang proceeds.
func (s *State) met(ev job.Met) string {
	u, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || s.grouped() || u.phase != job.Running || sl.NodeRank != 0 || s.progress.meeting == ev.Why && ev.Complete == nil {
		return s.step.ignore()
	}
	s.progress.meet(ev.Why)
	return ev.Why
}

// Meeting returns the text of a [job.Met]: which ranks are missing at the start of a gang, or for
// which key all but a few ranks wait. It costs O(ranks + clients).
func (s *State) Meeting(m job.Meeting) string { return s.ranks().Text(m) }

// Completed says which rank was the last to connect; nil while some are missing.
func (s *State) Completed(m job.Meeting) *job.Complete { return s.ranks().Completed(m) }

// stalled records a node whose ranks stand still. Their attempt fails when all nodes of the unit
// have reported this of all their ranks, or when this node reports a missing heartbeat for the
// second time. Ranks that wait for the hanging rank stop at most one step later. So between the two
// reports, the nodes of these ranks report their steps too, and the job can tell which rank is
// behind. If most ranks stand still and others go on, a person must judge whether that is a hang.
// The job reports it to the user once the ranks that stand still were reported twice.
func (s *State) stalled(ev job.Stalled) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.phase != job.Running || u.notice.departure != nil { // ready ranks wait to be stopped
		return s.step.ignore()
	}
	before := m.stalled
	u.moves(m)
	if len(ev.Ranks) == 0 {
		if before == nil {
			return s.step.ignore()
		}
		return "the ranks on " + ev.Node + " move again"
	}
	u.stalls(m, ev)
	idle := len(ev.Ranks) + ev.More
	switch {
	case u.stall.members == u.live, before != nil && beats(*before) && beats(ev):
		return s.fail(s.fault(s.hang(u)), u)
	case before == nil && ev.Moving > 0:
		return ""
	case before == nil:
		return fmt.Sprintf("on %s, %s not moved for %v; other nodes' move", ev.Node, have(idle), longestOf(ev))
	}
	u.stallsAgain(m, idle)
	if u.stall.told || 2*u.stall.ranks <= u.left {
		return ""
	}
	u.tellStall()
	return s.divided(u)
}

// divided says which ranks go on when most ranks of a unit stand still. It costs O(ranks).
func (s *State) divided(u *unit) string {
	moving, longest := map[int]bool{}, time.Duration(0)
	for i, m := range u.members {
		for _, b := range s.groupAt(u, u.first+i).Bundles {
			moving[b.Rank] = !s.progress.done[b.Rank]
		}
		if m.stalled != nil {
			longest = max(longest, longestOf(*m.stalled))
			for _, r := range m.stalled.Ranks {
				moving[r.Rank] = false
			}
		}
	}
	return fmt.Sprintf("%d of %d ranks have not moved for %v, and may wait for those that go on: %s",
		u.stall.ranks, u.left, longest, s.ranks().Without(func(rank int) bool { return !moving[rank] }))
}

// beats reports whether a heartbeat stands still.
func beats(e job.Stalled) bool {
	return slices.ContainsFunc(e.Ranks, func(r job.Still) bool { return r.Beat })
}

// longestOf is the longest time for which a rank has not moved, in whole seconds.
func longestOf(e job.Stalled) time.Duration {
	byFor := func(a, b job.Still) int { return cmp.Compare(a.For, b.For) }
	return slices.MaxFunc(e.Ranks, byFor).For.Round(time.Second)
}

// hang is the failure of a unit whose ranks stand still. It costs O(ranks).
func (s *State) hang(u *unit) report.Failure {
	var all []job.Still
	var behind []job.Client
	var longest time.Duration
	more := 0
	for _, m := range u.members {
		if m.stalled != nil {
			all, behind = append(all, m.stalled.Ranks...), append(behind, m.stalled.Behind...)
			more += m.stalled.More
			longest = max(longest, longestOf(*m.stalled))
		}
	}
	f := report.Failure{Node: s.plan.slots[u.first].Node.Name, Rank: -1, Attempt: u.attempt, Hung: true}
	f.Why = fmt.Sprintf("hang: %s not moved for %v", have(len(all)+more), longest)
	late, why := s.laggards(all, behind)
	if n := len(all) + more; len(late) == 0 && n < u.left {
		late, why = apart(all)
	}
	if len(late) == 0 {
		f.Why += "; none is behind the others" + standing(all)
		return f
	}
	f.Why += fmt.Sprintf("; behind is %s: %s", s.ranks().Without(func(rank int) bool { return !late[rank] }), why)
	first := slices.Min(slices.Collect(maps.Keys(late)))
	for _, sl := range s.plan.slots {
		if b, ok := bundle(sl.Group, first); ok {
			f.Node, f.Rank, f.GPU = sl.Node.Name, first, job.GPUOf(b.GPU)
		}
	}
	return f
}

// laggards returns the ranks for which the others wait, and the evidence. It looks for ranks that
// have made fewer steps than others. If there are none, it looks for ranks that NCCL names, and
// then for ranks that do something else than most ranks.
func (s *State) laggards(all []job.Still, behind []job.Client) (late map[int]bool, why string) {
	if late, why = slowest(all); len(late) > 0 {
		return late, why
	}
	late = map[int]bool{}
	rankOf := s.ranks().Find()
	for _, c := range behind {
		if rank, known := rankOf(c); known {
			late[rank], why = true, c.Key
		}
	}
	if len(late) > 0 {
		return late, why
	}
	if late, why = oddest(all, func(does string) string { return does }); len(late) > 0 {
		return late, why
	}
	// While one rank is stopped, the others may wait in different functions of the kernel. So
	// compare only the first word.
	return oddest(all, func(does string) string { word, _, _ := strings.Cut(does, " "); return word })
}

// apart returns all the ranks that stand still while others go on.
func apart(all []job.Still) (late map[int]bool, why string) {
	late = map[int]bool{}
	for _, r := range slices.Backward(all) {
		late[r.Rank], why = true, doingOf(r)
	}
	return late, why
}

// shownDoings bounds how many activities of ranks a reason names.
const shownDoings = 3

// standing says what ranks do when none is behind. It is empty if they do too many different
// things.
func standing(all []job.Still) string {
	ranks := map[string][]int{}
	var order []string
	for _, r := range all {
		if ranks[r.Does] == nil {
			order = append(order, r.Does)
		}
		ranks[r.Does] = append(ranks[r.Does], r.Rank)
	}
	switch {
	case len(order) == 1:
		return ", all are " + order[0]
	case len(order) > shownDoings:
		return ""
	}
	for i, does := range order {
		who := fmt.Sprintf("rank %d is ", ranks[does][0])
		if n := len(ranks[does]); n > 1 {
			who = fmt.Sprintf("%d ranks are ", n)
		}
		order[i] = who + does
	}
	return ": " + strings.Join(order, "; ")
}

// slowest returns the ranks with the lowest step, if others have a higher one.
func slowest(all []job.Still) (late map[int]bool, why string) {
	late = map[int]bool{}
	steps := slices.DeleteFunc(slices.Clone(all), func(r job.Still) bool { return r.Step < 0 })
	if len(steps) == 0 {
		return nil, ""
	}
	byStep := func(a, b job.Still) int { return cmp.Compare(a.Step, b.Step) }
	low, high := slices.MinFunc(steps, byStep), slices.MaxFunc(steps, byStep)
	if low.Step == high.Step {
		return nil, ""
	}
	for _, r := range steps {
		if r.Step == low.Step {
			late[r.Rank] = true
		}
	}
	return late, fmt.Sprintf("%s, and others were at step %d", doingOf(low), high.Step)
}

// oddest returns the ranks that do something else than the majority. by returns the part of Does to
// compare. A single rank is always returned.
func oddest(all []job.Still, by func(does string) string) (late map[int]bool, why string) {
	if len(all) == 1 {
		return map[int]bool{all[0].Rank: true}, doingOf(all[0])
	}
	doing := map[string]int{}
	for _, r := range all {
		doing[by(r.Does)]++
	}
	byCount := func(a, b string) int { return cmp.Compare(doing[a], doing[b]) }
	usual := slices.MaxFunc(slices.Sorted(maps.Keys(doing)), byCount)
	if len(doing) == 1 || 2*doing[usual] <= len(all) {
		return nil, ""
	}
	late = map[int]bool{}
	for _, r := range slices.Backward(all) {
		if by(r.Does) != usual {
			late[r.Rank], why = true, doingOf(r)
		}
	}
	return late, fmt.Sprintf("%s, and %d others are %s", why, doing[usual], usual)
}

func doingOf(r job.Still) string {
	if r.Step < 0 {
		return "it is " + r.Does
	}
	return fmt.Sprintf("it is %s, at step %d", r.Does, r.Step)
}

// have begins a sentence about some number of ranks.
func have(ranks int) string {
	if ranks == 1 {
		return "1 rank has"
	}
	return fmt.Sprintf("%d ranks have", ranks)
}
