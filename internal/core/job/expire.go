package job

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/launcher/report"
)

// expires tells the ranks of all units that the job will end. What does not run does not begin any more.
func (s *State) expires(ev Cancel) string {
	if s.ending.result != nil {
		return s.reword(ev)
	}
	if !slices.ContainsFunc(s.progress.units, func(u unit) bool { return !u.worked() }) { // it has done its work before it was told
		return s.ignore()
	}
	r := ev.result()
	d := departure{node: everyNode, within: ev.Within, why: ev.Why, loose: ev.Loose}
	known := slices.ContainsFunc(s.departures.announced, func(old departure) bool { return old.covers(d) })
	if known && s.departures.end != nil && ev.Once {
		return s.ignore()
	}
	s.departures.end, s.shortage.homeless, s.master.question = &r, nil, nil
	if !known {
		s.depart(d)
	}
	return fmt.Sprintf("the ranks have %v to get ready for the end of the job: %s", ev.Within, ev.Why)
}

// worked says that every rank of a unit has exited with 0, and nothing but what they have left may
// live.
func (u *unit) worked() bool {
	return u.phase == Finished || u.phase == Stopping && u.cause == nil
}

// reword says better why a job was told to stop that still does.
func (s *State) reword(ev Cancel) string {
	if s.ending.result.Ending != report.EndCancelled || s.ending.result.Code != s.exitCode(report.EndCancelled, ev.Code) || ev.Ending == "" {
		return s.ignore()
	}
	s.ending.result.Code, s.ending.result.Ending, s.ending.result.Reason = s.exitCode(ev.Ending, ev.Code), ev.Ending, ev.result().Reason
	return s.ending.result.Reason
}

// expire ends a job that is to end, once nothing of it lives that is not ready.
func (s *State) expire() string {
	if s.departures.end == nil || s.ending.result != nil || s.progress.ready < s.progress.live {
		return ""
	}
	return s.end(*s.departures.end)
}
