package job

import (
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// severed is what follows when nodes do not reach the master. Before anything has run the network or an address is wrong, and a person
// must mend that. Later it is the failure of a node, as any other.
func (s *State) severed() string {
	ranks := slices.Sorted(maps.Keys(s.master.unreached))
	why := s.notReached(ranks)
	if s.budget.attempts == 0 {
		f := Failure{Node: s.plan.slots[ranks[0]].Node.Name, Rank: -1, Why: why, Verdict: unreachable}
		return s.end(Result{Code: codeOwn, Reason: "job failed: " + also(why, unreachable.Remedy), Cause: &f})
	}
	blamed := s.guilty(ranks)
	for _, rank := range ranks {
		s.plan.slots[rank].asked = false
	}
	clear(s.master.unreached)
	units := s.stranded(blamed)
	if len(units) == 0 { // their nodes leave
		return ""
	}
	f := &fault{Failure: Failure{Node: blamed[0], Rank: -1, Attempt: units[0].attempt, Why: why, Verdict: unreachable}, others: blamed[1:]}
	return s.fail(f, units...)
}

var unreachable = verdict.Unreachable

// guilty are the nodes that are to blame when some do not reach the master: it, if there are more of them than of those that do, and else
// they. All that did not reach it since all ranks ran speak against it, but for who did not reach an earlier master either.
func (s *State) guilty(ranks []int) (blamed []string) {
	master, against, reaching := s.plan.slots[0].Node.Name, 0, 0
	for _, rank := range ranks {
		name := s.plan.slots[rank].Node.Name
		blamed = append(blamed, name)
		if s.master.missed[name] == "" {
			s.master.missed[name] = master
		}
	}
	for _, unheard := range s.master.missed {
		if unheard == master {
			against++
		}
	}
	for i, sl := range s.plan.slots {
		if s.master.unreached[i] == "" && sl.asked && !sl.vacant && (i > 0 || s.vouches(ranks)) {
			reaching++
		}
	}
	if against > reaching {
		blamed = []string{master}
	}
	s.acquit(blamed)
	return blamed
}

// acquit holds against nobody any more that it did not reach a node that is to blame, or was not reached by one.
func (s *State) acquit(blamed []string) {
	guilty := map[string]bool{}
	for _, name := range blamed {
		guilty[name] = true
	}
	forgive := func(name string) {
		if s.suspects.excluded[name] == unreachable.Cause {
			delete(s.suspects.excluded, name)
		}
	}
	for name, unheard := range s.master.missed {
		if guilty[name] {
			forgive(unheard)
		}
		if guilty[unheard] {
			forgive(name)
		}
	}
}

// vouches says that the master speaks for itself: ranks run there, or have, while those who do not reach it have had none yet.
func (s *State) vouches(ranks []int) bool {
	ran := func(rank int) bool {
		n := s.roster.nodes[s.plan.slots[rank].Node.Name]
		return n != nil && n.ran
	}
	return s.liveAt(0) || ran(0) && !slices.ContainsFunc(ranks, ran)
}

// stranded are the units that wait for the master on nodes that are to blame. If it is the master itself they are all that wait, and with
// them, if a spare can take its place, those that run there.
func (s *State) stranded(blamed []string) (units []*unit) {
	all := s.gang() || blamed[0] == s.plan.slots[0].Node.Name
	_, err := s.substitute(0, s.fit(s.list()))
	movable := all && err == nil && s.spec.ExcludeAfter > 0
	for i := range s.progress.units {
		u := &s.progress.units[i]
		waits := s.poised(u) && (all || slices.Contains(blamed, s.plan.slots[u.first].Node.Name))
		if waits || movable && u.first == 0 && u.phase == Running {
			units = append(units, u)
		}
	}
	return units
}

// elsewhere asks for another master among the nodes of the last attempt, if that was to blame for the end of it.
func (s *State) elsewhere(r placement.Request) (placement.Request, bool) {
	f := s.progress.units[0].cause
	if f == nil || f.Verdict.Cause != unreachable.Cause || f.Node != s.plan.slots[0].Node.Name || s.roster.nodes[f.Node] == nil {
		return r, false
	}
	here := slices.DeleteFunc(slices.Clone(s.plan.slots[1:]), func(sl slot) bool { return s.roster.nodes[sl.Node.Name] == nil })
	fit := slices.IndexFunc(here, func(sl slot) bool { return !s.Excludes(sl.Node.Name) })
	if len(here) == 0 {
		return r, false
	}
	name := here[max(0, fit)].Node.Name
	r.Keep = maps.Clone(r.Keep)
	r.Keep[name], r.Keep[f.Node] = r.Keep[f.Node], r.Keep[name]
	return r, true
}
