package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
)

// departures are the announced stops of ranks.
type departures struct {
	// announced are the departures still to come, in the order of their announcement.
	announced []departure
	// end is the result of a job whose end was announced, or nil. The job ends with this result
	// once all live ranks are ready.
	end *report.Result
	// endAt is when the end was announced. toSave says that the user waits for a checkpoint.
	endAt  time.Time
	toSave bool
}

// departure announces a stop, before which ranks have time to get ready. Either the ranks of a node
// stop because the node will be gone, or all ranks stop because the job ends or grows.
type departure struct {
	// node is the node that will be gone, or everyNode.
	node   string
	within time.Duration
	why    string
	// loose says that a scheduler ends the ranks that are not ready in time. Otherwise the alarm
	// whose Seq is alarm ends them. Each departure has an alarm of its own, because State knows no
	// time and cannot tell which departure is due first.
	loose bool
	alarm int
	// at is when the departure was announced. afterSave says that the ranks are stopped as soon as
	// they have saved. signal is the Seq of the alarm at which they get a signal to save; 0 for
	// none.
	at        time.Time
	afterSave bool
	signal    int
}

// everyNode stands for all nodes of a job.
const everyNode = ""

// reason is the reason that the notice tells ranks.
func (d departure) reason() string {
	if d.node == everyNode {
		return d.why
	}
	return fmt.Sprintf("%s leaves: %s", d.node, d.why)
}

// covers reports whether this departure makes another one needless, because the same ranks must be
// ready no later anyway.
func (d departure) covers(other departure) bool {
	return d.node == other.node && d.within <= other.within && (!d.loose || other.loose) && (d.afterSave || !other.afterSave)
}

func (ds *departures) add(d departure) { ds.announced = append(ds.announced, d) }

// forget drops the departures of a node.
func (ds *departures) forget(node string) {
	ds.announced = slices.DeleteFunc(ds.announced, func(d departure) bool { return d.node == node })
}

// take removes and returns the departure with that alarm.
func (ds *departures) take(alarm int) (departure, bool) {
	i := slices.IndexFunc(ds.announced, func(d departure) bool { return !d.loose && d.alarm == alarm })
	if i < 0 {
		return departure{}, false
	}
	d := ds.announced[i]
	ds.announced = slices.Delete(ds.announced, i, i+1)
	return d, true
}

func (ds *departures) cover(other departure) bool {
	return slices.ContainsFunc(ds.announced, func(d departure) bool { return d.covers(other) })
}

func (ds *departures) expire(r report.Result, d departure) {
	if ds.end == nil {
		ds.endAt = d.at
	}
	ds.end, ds.toSave = &r, ds.toSave || d.afterSave
}

// draining records that a node will be gone. The units that have ranks there stop in time and start
// again elsewhere, at no cost.
func (s *State) draining(ev job.Draining) string {
	n := s.roster.nodes[ev.Node]
	d := departure{node: ev.Node, within: ev.Within, why: ev.Why, at: ev.At}
	if n == nil || n.leaves != nil && n.leaves.covers(d) {
		return s.step.ignore()
	}
	s.roster.noteLeaving(n.Name, d)
	told, stopped := s.depart(d)
	text := words.Also(d.reason(), words.Also(told, stopped))
	if left, gone := s.letGo(n); gone {
		return left
	}
	return text
}

// depart begins a departure. It gives notice to the running ranks. They are stopped when all of
// them are ready, when they have saved (see saving.go), or when the time is over.
func (s *State) depart(d departure) (told, stopped string) {
	units := s.leavers(d)
	if s.decided() || !slices.ContainsFunc(units, func(u unit) bool { return u.phase == job.Running }) {
		return "", ""
	}
	if d.within <= 0 {
		stopped, _ = s.vacateAll(d)
		return "", stopped
	}
	if !d.loose {
		d.alarm = s.alarm(job.AlarmDeparture, d.within)
	}
	due := s.signalTime(&d)
	s.departures.add(d)
	for i := range units {
		u := &units[i]
		if u.phase != job.Running {
			continue
		}
		if u.notice.departure == nil || d.within < u.notice.departure.within {
			s.forewarn(u, d)
			told = fmt.Sprintf("the ranks have %v to get ready", d.within)
		}
		if due {
			u.signalDue()
			stopped = words.Also(stopped, s.stopWhenSaved(u))
		}
	}
	return told, stopped
}

// leavers returns the units that a departure concerns. Nothing starts on a node that leaves, so all
// these units have got the notice.
func (s *State) leavers(d departure) []unit {
	if d.node == everyNode {
		return s.progress.units
	}
	if n := s.roster.nodes[d.node]; n != nil && n.nodeRank != spare {
		return s.unitsAt(n.nodeRank)
	}
	return nil
}

// forewarn gives notice to the ranks of a unit that are not ready.
func (s *State) forewarn(u *unit, d departure) {
	u.notify(d)
	for i := range u.members {
		if m := &u.members[i]; m.live && !m.ready {
			s.orderNotice(u, u.first+i, d)
		}
	}
}

func (s *State) orderNotice(u *unit, nodeRank int, d departure) {
	s.step.do(job.Notice{
		Node: s.plan.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Within: d.within, Why: d.reason(), Alarm: d.alarm,
	})
}

// remind repeats the notice to a unit's ranks on a node.
func (s *State) remind(u *unit, nodeRank int) {
	for _, d := range s.departures.announced {
		if n := s.roster.nodes[d.node]; d.node == everyNode || n != nil && u.member(n.nodeRank) != nil {
			s.orderNotice(u, nodeRank, d)
		}
	}
}

// readied notes that the ranks of a unit on one node are ready.
func (s *State) readied(ev job.Ready) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.notice.departure == nil || u.phase != job.Running || m.ready {
		return s.step.ignore()
	}
	s.progress.setReady(u, m)
	return s.stopWhenReady(u)
}

// stopWhenReady stops a unit once all of its live ranks are ready. If the end of the job was
// announced, all units wait for each other instead: see endWhenReady.
func (s *State) stopWhenReady(u *unit) string {
	if u.notice.departure == nil || u.notice.ready < u.live || s.departures.end != nil {
		return ""
	}
	return words.Also(s.label(u)+": all ranks are ready", s.vacate(u, *u.notice.departure))
}

// overdue ends the wait for ranks to get ready.
func (s *State) overdue(ev job.TimedOut) string {
	d, ok := s.departures.take(ev.Seq)
	if !ok {
		return s.step.ignore()
	}
	if d.node == everyNode && s.departures.end != nil {
		return "the time to get ready is over; " + s.end(*s.departures.end)
	}
	text, stopped := s.vacateAll(d)
	if !stopped {
		return ""
	}
	return "the time to get ready is over; " + text
}

// vacateAll stops all ranks of a departure that still run, and reports whether any did.
func (s *State) vacateAll(d departure) (text string, stopped bool) {
	units := s.leavers(d)
	for i := range units {
		if u := &units[i]; u.phase == job.Running && !s.decided() {
			text, stopped = words.Also(text, s.vacate(u, d)), true
		}
	}
	return text, stopped
}

// vacate stops a unit for a departure, which is not a failure.
func (s *State) vacate(u *unit, d departure) string {
	f := report.Failure{Node: d.node, Rank: -1, Attempt: u.attempt, Why: d.reason()}
	u.stopFor(&fault{Failure: f, departs: true, decided: true})
	s.pass(u, job.Stopping)
	s.stop(u)
	return s.settle(u)
}

// letGo gives up a departing node once nothing runs there, and reports whether it did.
func (s *State) letGo(n *jobNode) (text string, gone bool) {
	if n == nil || n.leaves == nil || s.decided() {
		return "", false
	}
	if n.nodeRank != spare {
		for _, u := range s.unitsAt(n.nodeRank) {
			if u.live > 0 {
				return "", false
			}
		}
	}
	s.roster.noteLoss(fmt.Sprintf("%s has left: %s", n.Name, n.leaves.why))
	return s.removeNode(n), true
}

// letGoAll gives up the departing nodes of an ended unit.
func (s *State) letGoAll(u *unit) (text string) {
	for i := range u.members {
		left, _ := s.letGo(s.roster.nodes[s.plan.slots[u.first+i].Node.Name])
		text = words.Also(text, left)
	}
	return text
}

// leaves reports whether a unit cannot start on its node, because the node will be gone once the
// other ranks there have ended.
func (s *State) leaves(u *unit) bool {
	for i := range u.members {
		n := s.roster.nodes[s.plan.slots[u.first+i].Node.Name]
		if n != nil && n.nodeRank == u.first+i && n.leaves != nil {
			return true
		}
	}
	return false
}

// cancel ends the job at once, or announces its end. A second cancel kills.
func (s *State) cancel(ev job.Cancel) string {
	if end := s.departures.end; end != nil && end.Code == ev.Code { // the job's end was announced, with a reason
		ev.Ending = cmp.Or(ev.Ending, end.Ending)
	}
	if ev.Within > 0 {
		return s.announceEnd(ev)
	}
	if s.ending.cancels > 0 && ev.Once {
		return s.step.ignore()
	}
	s.ending.cancel(ev.Signal)
	switch {
	case s.ending.cancels > 1:
		for i := range s.progress.units {
			u := &s.progress.units[i]
			u.setTold(false)
			s.stop(u)
		}
		return "cancelled again: killing what still runs"
	case s.decided():
		return s.ending.result.Reason + "; still stopping; cancel again to kill"
	}
	r := resultOf(ev)
	r.Cause = s.cause()
	return s.end(r)
}

// resultOf returns the result of a job that is cancelled.
func resultOf(ev job.Cancel) report.Result {
	what := "job cancelled: "
	switch {
	case ev.Code == codeOwn, ev.Ending == report.EndProgram:
		what = "job failed: "
	case ev.Ending == report.EndPreempted:
		what = "job preempted: "
	}
	return report.Result{Code: cmp.Or(ev.Code, codeCancelled), Ending: ev.Ending, Reason: what + ev.Why}
}

// announceEnd tells the ranks of all units that the job will end. After that, nothing starts.
func (s *State) announceEnd(ev job.Cancel) string {
	if s.decided() {
		return s.correctEnding(ev)
	}
	if !slices.ContainsFunc(s.progress.units, owing) { // all units have done their work
		return s.step.ignore()
	}
	d := departure{node: everyNode, within: ev.Within, why: ev.Why, loose: ev.Loose, at: ev.At, afterSave: ev.AfterSave}
	known := s.departures.cover(d)
	if known && s.departures.end != nil && ev.Once {
		return s.step.ignore()
	}
	s.departures.expire(resultOf(ev), d)
	s.shortage.setHomeless(nil)
	for i := range s.masters.of {
		s.masters.of[i].dropQuestion()
	}
	stopped := ""
	if !known {
		_, stopped = s.depart(d)
	}
	return words.Also(fmt.Sprintf("the ranks have %v to get ready for the end of the job: %s", ev.Within, ev.Why), stopped)
}

// correctEnding gives a job that is still stopping a more precise reason.
func (s *State) correctEnding(ev job.Cancel) string {
	r := s.ending.result
	if r.Ending != report.EndCancelled || r.Code != s.exitCode(report.EndCancelled, ev.Code) || ev.Ending == "" {
		return s.step.ignore()
	}
	s.ending.reword(ev.Ending, s.exitCode(ev.Ending, ev.Code), resultOf(ev).Reason)
	return r.Reason
}

// endWhenReady ends a job whose end was announced, once all live ranks are ready.
func (s *State) endWhenReady() string {
	if s.departures.end == nil || s.decided() || s.progress.ready < s.progress.live {
		return ""
	}
	return s.end(*s.departures.end)
}
