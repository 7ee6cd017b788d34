package job

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// stalled takes note of a node whose ranks stand still. Their attempt fails when all nodes of the
// unit have said so of all their ranks, or when this one says it of a heartbeat for the second
// time. Ranks that only wait for the one that hangs are late by a step at most: their nodes say so
// between the two reports, and the rank that is behind can be told from them. When most ranks stand
// still and others go on, people must judge; they are told after a second report too.
func (s *State) stalled(ev Stalled) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.phase != Running || u.notice.departure != nil { // ranks that are ready to be stopped wait for that
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
	case u.stall.members == u.live, before != nil && before.beats() && ev.beats():
		return s.fail(s.fault(s.hang(u)), u)
	case before == nil && ev.Moving > 0:
		return ""
	case before == nil:
		return fmt.Sprintf("on %s, %s not moved for %v; other nodes' move", ev.Node, have(idle), ev.longest())
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
		for _, b := range s.share(u, u.first+i).Bundles {
			moving[b.Rank] = !s.progress.done[b.Rank]
		}
		if m.stalled != nil {
			longest = max(longest, m.stalled.longest())
			for _, r := range m.stalled.Ranks {
				moving[r.Rank] = false
			}
		}
	}
	return fmt.Sprintf("%d of %d ranks have not moved for %v, and may wait for those that go on: %s",
		u.stall.ranks, u.left, longest, s.without(func(rank int) bool { return !moving[rank] }))
}

// beats reports whether a heartbeat stands still.
func (e Stalled) beats() bool {
	return slices.ContainsFunc(e.Ranks, func(r Still) bool { return r.Beat })
}

// longest is the longest time that one of the ranks has not moved, in whole seconds.
func (e Stalled) longest() time.Duration {
	byFor := func(a, b Still) int { return cmp.Compare(a.For, b.For) }
	return slices.MaxFunc(e.Ranks, byFor).For.Round(time.Second)
}

// hang is the failure of a unit whose ranks stand still. It costs O(ranks).
func (s *State) hang(u *unit) report.Failure {
	var all []Still
	var behind []Client
	var longest time.Duration
	more := 0
	for _, m := range u.members {
		if m.stalled != nil {
			all, behind = append(all, m.stalled.Ranks...), append(behind, m.stalled.Behind...)
			more += m.stalled.More
			longest = max(longest, m.stalled.longest())
		}
	}
	f := report.Failure{Node: s.plan.slots[u.first].Node.Name, Rank: -1, Attempt: u.attempt, Hung: true}
	f.Why = fmt.Sprintf("hang: %s not moved for %v", have(len(all)+more), longest)
	late, why := s.laggards(all, behind)
	if n := len(all) + more; len(late) == 0 && n < u.left {
		late, why = apart(all)
	}
	if len(late) == 0 {
		f.Why += "; none is behind the others"
		if alike(all) {
			f.Why += ", all are " + all[0].Does
		}
		return f
	}
	f.Why += fmt.Sprintf("; behind is %s: %s", s.without(func(rank int) bool { return !late[rank] }), why)
	first := slices.Min(slices.Collect(maps.Keys(late)))
	for _, sl := range s.plan.slots {
		if b, ok := bundle(sl.Group, first); ok {
			f.Node, f.Rank, f.GPU = sl.Node.Name, first, gpuOf(b.GPU)
		}
	}
	return f
}

// laggards returns the ranks that the others wait for, and how that shows: they have made fewer
// steps; or else NCCL says so; or else they do something else than most.
func (s *State) laggards(all []Still, behind []Client) (late map[int]bool, why string) {
	if late, why = slowest(all); len(late) > 0 {
		return late, why
	}
	late = map[int]bool{}
	ranks, homes := s.processes()
	for _, c := range behind {
		if rank, known := ranks[process{home(homes, c.Addr), c.PID}]; known {
			late[rank], why = true, c.Key
		}
	}
	if len(late) > 0 {
		return late, why
	}
	if late, why = oddest(all, func(does string) string { return does }); len(late) > 0 {
		return late, why
	}
	// Most may wait in different functions of the kernel while one is stopped.
	return oddest(all, func(does string) string { word, _, _ := strings.Cut(does, " "); return word })
}

// apart returns all of the ranks that stand still while others go on.
func apart(all []Still) (late map[int]bool, why string) {
	late = map[int]bool{}
	for _, r := range slices.Backward(all) {
		late[r.Rank], why = true, r.describe()
	}
	return late, why
}

// alike reports whether all ranks do the same.
func alike(all []Still) bool {
	return !slices.ContainsFunc(all, func(r Still) bool { return r.Does != all[0].Does })
}

// slowest returns the ranks with the lowest step, if others have a higher one.
func slowest(all []Still) (late map[int]bool, why string) {
	late = map[int]bool{}
	steps := slices.DeleteFunc(slices.Clone(all), func(r Still) bool { return r.Step < 0 })
	if len(steps) == 0 {
		return nil, ""
	}
	byStep := func(a, b Still) int { return cmp.Compare(a.Step, b.Step) }
	low, high := slices.MinFunc(steps, byStep), slices.MaxFunc(steps, byStep)
	if low.Step == high.Step {
		return nil, ""
	}
	for _, r := range steps {
		if r.Step == low.Step {
			late[r.Rank] = true
		}
	}
	return late, fmt.Sprintf("%s, and others were at step %d", low.describe(), high.Step)
}

// oddest returns the ranks that do not do what more than half of all do, compared by a part of
// that. A rank alone is one.
func oddest(all []Still, by func(does string) string) (late map[int]bool, why string) {
	if len(all) == 1 {
		return map[int]bool{all[0].Rank: true}, all[0].describe()
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
			late[r.Rank], why = true, r.describe()
		}
	}
	return late, fmt.Sprintf("%s, and %d others are %s", why, doing[usual], usual)
}

func (r Still) describe() string {
	if r.Step < 0 {
		return "it is " + r.Does
	}
	return fmt.Sprintf("it is %s, at step %d", r.Does, r.Step)
}

// have is the beginning of a sentence about ranks.
func have(ranks int) string {
	if ranks == 1 {
		return "1 rank has"
	}
	return fmt.Sprintf("%d ranks have", ranks)
}
