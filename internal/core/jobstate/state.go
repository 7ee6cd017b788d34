// Package jobstate decides what happens to one job: when it starts, what a failure means, when it
// restarts and how it ends.
//
// [State.Step] takes an event and returns the actions that follow, with the reason in words. It
// reads no clock, environment, network or randomness and starts no goroutine, so the same events
// always give the same state and the same actions. Time enters as events: [job.Wait] and
// [job.Alarm] ask for a timer, and [job.Elapsed] and [job.TimedOut] answer them.
//
// The ranks that restart together form a unit. With the default policy the whole gang is one unit.
// A unit counts its attempts from 0. It gathers its nodes and prepares: the master chooses a port,
// and the other nodes prove that they reach the port. Then it starts, and fails or is done:
//
//	gathering -> preparing -> running -> stopping -> finished
//	    ^            ^                      |
//	    |            |                      v
//	    +------------+------------------ backoff
//
// From the second attempt on it may also fail while it prepares, because a node does not reach the
// master.
//
// The state consists of parts, each with its own methods. To find where something is decided:
//
//   - roster.go: which nodes are there, and what the loss of one means;
//   - place.go and substitute.go: which node gets which ranks, and which node takes the place of
//     another one;
//   - master.go: the master's port, and which nodes do not reach it;
//   - attempt.go and unit.go: how an attempt starts, stops and is followed by the next one;
//   - failure.go: what a failure means, and whether a restart follows;
//   - groups.go: which replica groups train together, and which of them, and which ranks, the job can
//     do without;
//   - exclusion.go: which nodes are used only if no others fit;
//   - departure.go: announced ends, of nodes and of the job;
//   - hang.go: which rank the others wait for;
//   - wants.go: which nodes the job asks a cluster for, and when it grows.
//
// Tests in random worlds check these invariants, whichever messages are late, lost, doubled or
// reordered, and whichever nodes die:
//
//   - No node starts an attempt while an earlier one of its ranks may live anywhere: each node that
//     had it has said that it stopped, or is lost.
//   - A report of an earlier attempt, or of a node that was lost or has stopped, changes nothing.
//   - The job finishes once, when none of its processes can live. Only this is final.
//   - The announced end of a node costs no budget, however often it is announced.
//   - The job succeeds only if every rank's newest attempt exited 0 and each of its nodes said
//     stopped. A lost node is a failure. Up to [job.Spec].LostRanks ranks may fail or be lost
//     nevertheless.
//   - Without a refill, a unit has at most MaxRestarts+1 attempts, and one more for each node that
//     is to blame. Each attempt but the first follows a [job.Wait] that has elapsed.
//   - A program that cannot be started is not started again. Nothing starts once the end is decided
//     or announced.
//   - Ranks get a notice of each end that is sooner than the ends they know of, and are stopped
//     when the first end is due. Nothing starts on a node that leaves.
//   - An order to start goes only to nodes that have said that they reach the master's port, if the
//     master lives. A repeated order is exempt.
//
// A step costs O(1), except for placement and for the start or stop of a whole attempt.
package jobstate

import (
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// State is the state of one job. Only one goroutine uses it.
//
// State consists of parts. Only the methods of a part change its fields. Methods of State read all
// parts and decide.
type State struct {
	spec       job.Spec
	roster     roster
	plan       plan
	progress   progress
	masters    masters
	shortage   shortage
	budget     budget
	verdicts   verdicts
	suspects   suspects
	departures departures
	saves      saves
	timers     timers
	cohort     cohort
	ending     ending
	step       step `snapshot:"-"`
}

// New returns a job that waits for nodes. Its first step arms the [job.AlarmPlacement].
func New(spec job.Spec) *State {
	s := &State{
		spec:     spec,
		roster:   roster{nodes: map[string]*jobNode{}, addrs: map[netip.Addr]string{}, spares: map[string]bool{}},
		progress: progress{units: []unit{{phase: job.Gathering}}},
		masters:  newMasters(1),
		suspects: suspects{blamed: map[string]int{}, excluded: map[string]exclusion{}},
		timers:   timers{newest: map[job.AlarmKind]int{}},
		ending:   ending{fatal: noUnit},
	}
	s.shortage.waitFor(s.shortfall())
	return s
}

// gang reports whether all ranks are one unit.
func (s *State) gang() bool { return s.spec.Gang() }

// grouped reports whether the units are replica groups.
func (s *State) grouped() bool { return s.spec.Restart == job.RestartGroup }

// placesAll reports whether the next placement is of all nodes at once. For a gang it always is;
// for other units it is until the first start.
func (s *State) placesAll() bool { return s.gang() || s.budget.attempts == 0 }

// closed says that no further node can join.
func (s *State) closed() bool {
	return s.spec.FixedPool && s.roster.joined >= s.spec.Pool && (s.budget.attempts > 0 || s.roster.lost)
}

// decided reports whether the end of the job is decided.
func (s *State) decided() bool { return s.ending.result != nil }

// unitsAt returns the units that have ranks on a node rank.
func (s *State) unitsAt(nodeRank int) []unit {
	units := s.progress.units
	switch {
	case len(units) == 1:
		return units
	case s.spec.Restart == job.RestartNode:
		return units[nodeRank : nodeRank+1]
	}
	b := s.plan.slots[nodeRank].Bundles
	per := s.perUnit()
	return units[b[0].Rank/per : b[len(b)-1].Rank/per+1]
}

// find returns the unit and the slot that a report is about. It returns false for a stale report:
// of a lost node, of another attempt, or of a node that has said stopped.
func (s *State) find(name string, id, attempt int) (*unit, *member, *slot, bool) {
	n := s.roster.nodes[name]
	if n == nil || n.nodeRank == spare || id < 0 || id >= len(s.progress.units) {
		return nil, nil, nil, false
	}
	u := &s.progress.units[id]
	m := u.member(n.nodeRank)
	if m == nil || !m.live || u.attempt != attempt {
		return nil, nil, nil, false
	}
	return u, m, &s.plan.slots[n.nodeRank], true
}

// groupAt is the placement group of a unit on one node rank.
func (s *State) groupAt(u *unit, nodeRank int) placement.Group {
	g := s.plan.slots[nodeRank].Group
	if s.spec.Restart == job.RestartRank || s.grouped() {
		per, n := s.perUnit(), len(g.Bundles)
		from := u.id*per - g.Bundles[0].Rank
		to := min(from+per, n)
		g.Bundles = g.Bundles[max(0, from):to:to]
	}
	return g
}

// size is how many ranks a unit has; 0 before there is a plan.
func (s *State) size(u *unit) int {
	switch {
	case s.gang(), len(s.plan.slots) == 0:
		return s.plan.world.WorldSize
	case s.spec.Restart == job.RestartNode:
		return len(s.plan.slots[u.first].Bundles)
	}
	return s.perUnit()
}

// perUnit is how many ranks each unit has if all units have the same number: one, or the size of a
// group.
func (s *State) perUnit() int {
	if s.grouped() {
		return s.plan.world.WorldSize / s.spec.Groups
	}
	return 1
}

// timers are the alarms that are set.
type timers struct {
	// newest is the sequence number of the newest alarm of each kind; 0 when that alarm no longer
	// matters.
	newest map[job.AlarmKind]int
	seq    int
}

func (t *timers) next() int {
	t.seq++
	return t.seq
}

func (t *timers) set(kind job.AlarmKind, seq int) { t.newest[kind] = seq }
func (t *timers) clear(kind job.AlarmKind)        { t.newest[kind] = 0 }
func (t *timers) runs(kind job.AlarmKind) bool    { return t.newest[kind] != 0 }

// answers reports whether an event answers the newest alarm of its kind.
func (t *timers) answers(ev job.TimedOut) bool { return ev.Seq != 0 && ev.Seq == t.newest[ev.Kind] }

// arm sets an alarm that makes older ones of its kind stale.
func (s *State) arm(kind job.AlarmKind) { s.timers.set(kind, s.alarm(kind, 0)) }

// alarm asks for a timer, and returns the timer's sequence number.
func (s *State) alarm(kind job.AlarmKind, after time.Duration) int {
	seq := s.timers.next()
	s.step.do(job.Alarm{Kind: kind, Seq: seq, For: after})
	return seq
}

// ending describes the end of the job.
type ending struct {
	cancels int
	// signal is the signal with which the job was told to stop, see [job.Stop].
	signal int
	// fatal is the unit whose failure ends the job, or noUnit. why says why no restart follows.
	fatal int
	why   string
	// result is set when the end is decided. Live processes are then stopped, and the job is
	// finished when no process lives.
	result   *report.Result
	finished bool
}

// cancel counts a request to stop. Only the first request determines the signal.
func (e *ending) cancel(signal int) {
	if e.cancels++; e.cancels == 1 {
		e.signal = signal
	}
}

func (e *ending) putDownTo(unit int, why string) { e.fatal, e.why = unit, why }
func (e *ending) decide(r report.Result)         { e.result = &r }

// reword corrects the reason of the end.
func (e *ending) reword(end report.Ending, code int, reason string) {
	e.result.Ending, e.result.Code, e.result.Reason = end, code, reason
}

func (e *ending) finish() { e.finished = true }

// step has the effects of the newest event.
type step struct {
	actions []job.Action
	changes []goodput.Change
	judged  report.Verdict
	// loss is the loss of a node. It is kept because it may prevent the next attempt; nil if no
	// node was lost.
	loss  *report.Failure
	stale bool
	// replaced says that a spare took the place of a node.
	replaced bool
}

func (st *step) do(a job.Action)        { st.actions = append(st.actions, a) }
func (st *step) note(c goodput.Change)  { st.changes = append(st.changes, c) }
func (st *step) judge(v report.Verdict) { st.judged = v }
func (st *step) replace()               { st.replaced = true }
func (st *step) lose(f *fault)          { st.loss = &f.Failure }

// ignore is the answer to an event that changes nothing.
func (st *step) ignore() string {
	st.stale = true
	return ""
}

// settleStale notes that an event with actions is not stale.
func (st *step) settleStale() { st.stale = st.stale && len(st.actions) == 0 }
