package job

import (
	"fmt"
	"slices"
	"time"
)

// departure is that ranks will be stopped, and have until then to get ready: those of a node that will be gone, or all of them, for the
// end of the job or for its growth. Each has an alarm of its own, since nobody here can tell which of several is the first to be due.
type departure struct {
	// node is the one that will be gone, or everyNode.
	node   string
	within time.Duration
	why    string
	// loose says that somebody else ends what is not ready in time; otherwise alarm is the Seq of the alarm that does.
	loose bool
	alarm int
}

// everyNode stands for all nodes of a job.
const everyNode = ""

// reason is what ranks are told.
func (d departure) reason() string {
	if d.node == everyNode {
		return d.why
	}
	return fmt.Sprintf("%s leaves: %s", d.node, d.why)
}

// covers says that nothing is new in another departure: the same ranks must be ready by then anyway.
func (d departure) covers(other departure) bool {
	return d.node == other.node && d.within <= other.within && (!d.loose || other.loose)
}

// depart begins a departure: the ranks that run are told, and stopped when all of them are ready or the time is over.
func (s *State) depart(d departure) (text string) {
	units := s.leavers(d)
	if s.ending.result != nil || !slices.ContainsFunc(units, func(u unit) bool { return u.phase == Running }) {
		return ""
	}
	if d.within <= 0 {
		return s.vacateAll(d)
	}
	if !d.loose {
		d.alarm = s.alarm(AlarmDeparture, d.within)
	}
	s.departures.announced = append(s.departures.announced, d)
	for i := range units {
		if u := &units[i]; u.phase == Running && (u.notice == nil || d.within < u.notice.within) {
			s.forewarn(u, d)
			text = fmt.Sprintf("the ranks have %v to get ready", d.within)
		}
	}
	return text
}

// leavers are the units that a departure is about: nothing starts on a node that leaves, so that they are the ones that were told.
func (s *State) leavers(d departure) []unit {
	if d.node == everyNode {
		return s.progress.units
	}
	if n := s.roster.nodes[d.node]; n != nil && n.slot != spare {
		return s.unitsAt(n.slot)
	}
	return nil
}

// forewarn gives notice to the ranks of a unit that are not ready.
func (s *State) forewarn(u *unit, d departure) {
	u.notice = &d
	for i := range u.members {
		if m := &u.members[i]; m.live && !m.ready {
			s.orderNotice(u, u.first+i, d)
		}
	}
}

func (s *State) orderNotice(u *unit, nodeRank int, d departure) {
	s.do(Notice{
		Node: s.plan.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Within: d.within, Why: d.reason(), Alarm: d.alarm,
	})
}

// remind repeats to a node what its share of a unit was told.
func (s *State) remind(u *unit, nodeRank int) {
	for _, d := range s.departures.announced {
		if n := s.roster.nodes[d.node]; d.node == everyNode || n != nil && u.member(n.slot) != nil {
			s.orderNotice(u, nodeRank, d)
		}
	}
}

// readied counts the nodes of a unit whose ranks are ready.
func (s *State) readied(ev Ready) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.notice == nil || u.phase != Running || m.ready {
		return s.ignore()
	}
	m.ready = true
	u.ready++
	s.progress.ready++
	return s.heeded(u)
}

func (s *State) unready(u *unit, m *member) {
	if m.ready {
		m.ready = false
		u.ready--
		s.progress.ready--
	}
}

// heeded stops a unit once all of its ranks that live are ready. For the end of the job, all units wait for each other.
func (s *State) heeded(u *unit) string {
	if u.notice == nil || u.ready < u.live || s.departures.end != nil {
		return ""
	}
	return also(s.label(u)+": all ranks are ready", s.vacate(u, *u.notice))
}

// overdue ends the wait for ranks to get ready.
func (s *State) overdue(ev TimedOut) string {
	i := slices.IndexFunc(s.departures.announced, func(d departure) bool { return !d.loose && d.alarm == ev.Seq })
	if i < 0 {
		return s.ignore()
	}
	d := s.departures.announced[i]
	s.departures.announced = slices.Delete(s.departures.announced, i, i+1)
	text := ""
	if d.node == everyNode && s.departures.end != nil {
		text = s.end(*s.departures.end)
	} else {
		text = s.vacateAll(d)
	}
	if text == "" {
		return ""
	}
	return "the time to get ready is over; " + text
}

// vacateAll stops what still runs of a departure.
func (s *State) vacateAll(d departure) (text string) {
	units := s.leavers(d)
	for i := range units {
		if u := &units[i]; u.phase == Running && s.ending.result == nil {
			text = also(text, s.vacate(u, d))
		}
	}
	return text
}

// vacate stops a unit for the sake of a departure, which is no failure.
func (s *State) vacate(u *unit, d departure) string {
	u.cause = &fault{Failure: Failure{Node: d.node, Rank: -1, Attempt: u.attempt, Why: d.reason()}, departs: true, decided: true}
	s.pass(u, Stopping)
	s.stop(u)
	return s.settle(u)
}
