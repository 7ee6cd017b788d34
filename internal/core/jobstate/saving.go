package jobstate

import (
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
)

// A departure gives ranks time to get ready. The job uses this time to lose little work, even if
// the program knows nothing of golaunch. Before the deadline it stops a unit in three cases:
//
//   - All ranks of the unit have said that they are ready.
//   - The unit has completed a checkpoint since the announcement. Replica groups have the same
//     weights, so for the end of the job the checkpoint of any group counts for all.
//   - Each rank of the unit catches the signal that stops it, and can save in response to it. The
//     job then stops the unit when the time that is left is about twice as long as the newest save
//     took. The unit has this time, and the grace period, to end.
//
// The job does not stop a unit that writes a checkpoint, except in the first case.
//
// If the user waits for the stop ([job.Cancel].AfterSave), ranks that catch the signal get it at
// once, or, if the program's next checkpoint is due in time, after that checkpoint. Some programs,
// such as Lightning's, catch the signal and end without a checkpoint; these programs lose no work
// if golaunch waits for the checkpoint that is due.
//
// In all other cases the unit runs until the deadline: its next checkpoint may be complete in time,
// and a program that reads the notice may get ready. At the deadline the unit is always stopped.

// signalMargin is added to the time allowed for a save after a signal, which is twice the time of
// the newest save. Ranks check for the signal only between steps.
const signalMargin = 5 * time.Second

// signalTime sets the alarm at which ranks that catch the signal get it. It reports whether they
// get the signal at once.
func (s *State) signalTime(d *departure) (due bool) {
	last := s.saves.last
	if last == nil { // nothing shows that the program saves
		return d.afterSave
	}
	took := last.Ended.Sub(last.Began)
	reserve := 2*took + signalMargin
	left := d.within - reserve
	if d.afterSave {
		// By then the next save should have ended, with the reserve to spare.
		next := last.Ended.Add(s.saves.every).Sub(d.at) + reserve
		if s.saves.every == 0 || next > left {
			return true
		}
		left = next
	}
	if left <= 0 {
		return true
	}
	d.signal = s.alarm(job.AlarmSave, left)
	return false
}

// signalDue sends the signal to the ranks that catch it, since these ranks need the rest of their
// time to save.
func (s *State) signalDue(ev job.TimedOut) (text string) {
	d, ok := s.departures.find(ev.Seq)
	if !ok {
		return s.step.ignore()
	}
	units := s.leavers(d)
	stale := true
	for i := range units {
		if u := &units[i]; u.phase == job.Running && u.notice.departure != nil && !u.notice.due {
			stale = false
			u.signalDue()
			text = words.Also(text, s.stopWhenSaved(u))
		}
	}
	if stale {
		return s.step.ignore()
	}
	return text
}

// find returns the departure whose signal is due at that alarm.
func (ds *departures) find(signal int) (departure, bool) {
	for _, d := range ds.announced {
		if d.signal == signal && signal != 0 {
			return d, true
		}
	}
	return departure{}, false
}

// caught counts the nodes of a unit whose ranks catch the signal.
func (s *State) caught(ev job.Catching) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.notice.departure == nil || u.phase != job.Running || m.catches {
		return s.step.ignore()
	}
	u.catches(m)
	return s.stopWhenSaved(u)
}

// landed records that a unit has completed a checkpoint, and stops the units whose work is now
// saved. A checkpoint from before the announcement does not count.
func (s *State) landed(by *unit, ended time.Time) (stopped string) {
	units := s.progress.units[by.id : by.id+1]
	if s.grouped() && s.departures.end != nil {
		units = s.progress.units
	}
	for i := range units {
		if u := &units[i]; u.notice.departure != nil && u.phase == job.Running && !ended.Before(u.notice.departure.at) {
			u.setSaved()
			stopped = words.Also(stopped, s.stopWhenSaved(u))
		}
	}
	return stopped
}

// stopWhenSaved stops a unit that was told of its end, once the stop loses no work, or once its
// ranks can save in response to the signal.
func (s *State) stopWhenSaved(u *unit) string {
	n := u.notice
	if n.departure == nil || u.phase != job.Running || s.decided() || s.saves.writes(u.id) {
		return ""
	}
	why := ""
	switch {
	case n.saved:
		why = fmt.Sprintf("%s has saved", s.label(u))
	case n.due && n.catching == u.live:
		why = s.label(u) + " is told to save and to end"
	default:
		return ""
	}
	u.reprieve()
	return words.Also(why, s.vacate(u, *n.departure))
}

// reprieve is how much more time ranks have if they are stopped early to save. They have the time
// until the alarm of their departure. If a scheduler ends them, there is no alarm: they get the
// whole time of the notice again, and the scheduler ends them before that time is over.
func (s *State) reprieve(u *unit) (alarm int, more time.Duration) {
	d := u.notice.departure
	switch {
	case !u.notice.reprieved || s.ending.cancels > 0:
		return 0, 0
	case d.loose:
		return 0, d.within
	}
	return d.alarm, 0
}

// afterNotice reports whether the newest complete checkpoint ended after the end of the job was
// announced.
func (s *State) afterNotice() bool {
	last := s.saves.last
	return s.departures.end != nil && last != nil && !last.Ended.Before(s.departures.endAt)
}
