package jobstate

import (
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// progress is the progress of the units and their ranks.
type progress struct {
	// units are the sets of ranks that restart on their own. Before the first plan, unit 0 stands
	// for the whole job.
	units []unit
	// done says for each rank whether it exited 0 in the newest attempt of its unit, or whether the
	// others go on without it. pids are the process ids of the ranks, 0 for unknown ones.
	done []bool
	pids []int
	// meeting is the text of the newest [job.Met].
	meeting string
	// open counts the units that have not succeeded. live counts the pairs of unit and node that
	// may have processes. ready counts the live pairs that are ready for the end of the job.
	open, live, ready int
}

// unit is a set of ranks that restart together.
type unit struct {
	id, attempt int
	phase       job.Phase
	// first is the node rank of members[0].
	first   int
	members []member
	counts
	// imports says what fork servers did for the newest attempt.
	imports job.Imports
	stall   stall
	// tally is the tally of a replica group. abandoned says that the group does not start again.
	tally     tally
	abandoned bool
	// told says that all live members were ordered to stop.
	told bool
	// cause is why the newest attempt failed, or was stopped. failing says that the unit has not
	// run since.
	cause   *fault
	failing bool
	// early is the first rank that exited 0 in the newest attempt while others ran, or nil.
	early  *verdict.Early
	notice notice
}

const noUnit = -1

// counts counts the ranks and members of a unit's newest attempt.
type counts struct {
	// left counts the ranks that are not done, live the members that may have processes, and
	// starting the members that have not started their ranks.
	left, live, starting int
	// lost counts the ranks that the others go on without.
	lost int
}

func (c *counts) lose() { c.lost++ }

// notice is the notice of their end that a unit's ranks have got. It has the departure with the
// least time (nil for none), and how many live members are ready for it. For the other fields see
// saving.go.
type notice struct {
	departure *departure
	ready     int
	// saved says that the unit has completed a checkpoint since the notice. catching counts the
	// live members whose ranks catch the stop signal. due says that these ranks need the rest of
	// the time to save. reprieved says that the unit was stopped early, and may use all of its
	// time.
	saved, due, reprieved bool
	catching              int
}

// stall counts the live members whose newest report says that all their ranks stand still. It also
// counts the ranks of members with two reports in a row that ranks stand still. told says that the
// job has reported that most of its ranks stand still.
type stall struct {
	members, ranks int
	told           bool
}

// member is a unit's share of one node. It is live from the order to start until the node reports
// that it has stopped, or is lost.
type member struct {
	live, started, ready, catches bool
	left                          int
	// stalled is the newest report that the member's ranks stand still, nil while they move. idle
	// is how many ranks stand still according to the second report in a row, 0 before that report.
	stalled *job.Stalled
	idle    int
}

// adopt divides a new placement into units.
func (p *progress) adopt(chosen placement.Plan, spec job.Spec) {
	size := chosen.WorldSize()
	p.done, p.pids = make([]bool, size), make([]int, size)
	switch spec.Restart {
	case job.RestartNode:
		p.units = make([]unit, len(chosen.Groups))
		for i := range p.units {
			p.units[i] = unit{id: i, first: i, members: make([]member, 1)}
		}
	case job.RestartRank:
		p.units = make([]unit, 0, size)
		for i, g := range chosen.Groups {
			for range g.Bundles {
				p.units = append(p.units, unit{id: len(p.units), first: i, members: make([]member, 1)})
			}
		}
	case job.RestartGroup:
		p.units = groups(chosen, spec.Groups)
	default:
		p.units[0].members = make([]member, len(chosen.Groups))
	}
	p.open = len(p.units)
}

// groups divides a placement into replica groups, whose ranks are consecutive.
func groups(chosen placement.Plan, number int) []unit {
	units, per := make([]unit, number), chosen.WorldSize()/number
	for i := range units {
		units[i] = unit{id: i, first: -1}
	}
	for node, g := range chosen.Groups {
		for k := g.Bundles[0].Rank / per; k <= g.Bundles[len(g.Bundles)-1].Rank/per; k++ {
			u := &units[k]
			if u.first < 0 {
				u.first = node
			}
			u.members = append(u.members, member{})
		}
	}
	return units
}

// shrink drops all units but unit 0, which stands for the whole job until the next plan.
func (p *progress) shrink() { p.units = p.units[:1] }

// begin starts an attempt of a unit.
func (p *progress) begin(u *unit) {
	u.cause, u.notice, u.told, u.early, u.stall.told = nil, notice{}, false, nil, false
	u.counts = counts{live: len(u.members), starting: len(u.members)} // all are ordered to start
	u.imports = job.Imports{}
	p.meeting = ""
	p.live += u.live
}

// launch notes that a member was ordered to start its ranks.
func (p *progress) launch(u *unit, index int, g placement.Group) {
	u.members[index] = member{live: true, left: len(g.Bundles)}
	u.left += len(g.Bundles)
	for _, b := range g.Bundles {
		p.done[b.Rank] = false
	}
}

// started notes that the ranks of a member run, with their process ids.
func (p *progress) started(u *unit, m *member, g placement.Group, ev job.Started) {
	m.started = true
	for i, b := range g.Bundles {
		p.pids[b.Rank] = 0
		if i < len(ev.PIDs) {
			p.pids[b.Rank] = ev.PIDs[i]
		}
	}
	u.imports.Add(ev.Imports)
	u.starting--
}

// exit notes that a rank is done.
func (p *progress) exit(u *unit, m *member, rank int) {
	p.done[rank] = true
	m.left--
	u.left--
}

// settle notes that no process of a member lives.
func (p *progress) settle(u *unit, m *member) {
	u.moves(m)
	p.unready(u, m)
	m.live = false
	u.live--
	p.live--
}

// finish notes that a unit has ended for good, and reports whether it was the last one.
func (p *progress) finish() bool {
	p.open--
	return p.open == 0
}

func (p *progress) setReady(u *unit, m *member) {
	m.ready = true
	u.notice.ready++
	p.ready++
}

func (p *progress) unready(u *unit, m *member) {
	if m.catches {
		m.catches = false
		u.notice.catching--
	}
	if m.ready {
		m.ready = false
		u.notice.ready--
		p.ready--
	}
}

func (p *progress) meet(text string) { p.meeting = text }

// member finds the member of a unit on a node rank, nil if it has none.
func (u *unit) member(nodeRank int) *member {
	if i := nodeRank - u.first; i >= 0 && i < len(u.members) {
		return &u.members[i]
	}
	return nil
}

func (u *unit) enter(p job.Phase)       { u.phase = p }
func (u *unit) stopFor(f *fault)        { u.cause = f }
func (u *unit) setFailing(failing bool) { u.failing = failing }
func (u *unit) setTold(told bool)       { u.told = told }
func (u *unit) abandon()                { u.abandoned = true }
func (u *unit) next()                   { u.attempt++ }
func (u *unit) notify(d departure)      { u.notice.departure = &d }
func (u *unit) signalDue()              { u.notice.due = true }
func (u *unit) setSaved()               { u.notice.saved = true }
func (u *unit) reprieve()               { u.notice.reprieved = true }

// catches notes that the ranks of a member catch the signal that stops them.
func (u *unit) catches(m *member) {
	m.catches = true
	u.notice.catching++
}

// exitEarly notes that a rank exited 0 while others run. Another node may already have reported a
// later failure.
func (u *unit) exitEarly(ev job.Exited) { u.early = u.early.And(ev.Rank, ev.Node, ev.At) }

// stalls notes that a member's ranks stand still.
func (u *unit) stalls(m *member, ev job.Stalled) {
	m.stalled = &ev
	if ev.Moving == 0 {
		u.stall.members++
	}
}

// stallsAgain notes a second report in a row that a member's ranks stand still.
func (u *unit) stallsAgain(m *member, ranks int) {
	m.idle = ranks
	u.stall.ranks += ranks
}

// tellStall notes that the job has reported that most ranks stand still.
func (u *unit) tellStall() { u.stall.told = true }

// moves notes that a member's ranks move.
func (u *unit) moves(m *member) {
	if m.stalled == nil {
		return
	}
	if m.stalled.Moving == 0 {
		u.stall.members--
	}
	u.stall.ranks -= m.idle
	m.stalled, m.idle = nil, 0
}

// succeeded reports whether every rank has exited 0. Processes that they left behind may still
// live.
func (u *unit) succeeded() bool {
	return u.phase == job.Finished && !u.abandoned || u.phase == job.Stopping && u.cause == nil
}

// owes reports whether a unit that lost a node needs another node.
func (u *unit) owes() bool { return !u.succeeded() && !u.abandoned }

// excuses reports whether the end of a rank does not count as a failure, because the rank had
// started and had got notice of its end.
func (u *unit) excuses(ev job.Exited) bool { return u.notice.departure != nil && ev.Exit.Started() }
