package jobstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
)

// departing has the attempts that must have been ordered to stop when the alarm fires. every says
// that the list has all attempts.
type departing struct {
	attempts []attemptOf
	within   time.Duration
	every    bool
}

// noteNotice notes for which running attempts an event announces the end: for the attempts on a
// node, or for all.
func (t *truth) noteNotice(ev job.Event) {
	t.affected = nil
	switch ev := ev.(type) {
	case job.Draining:
		if n := t.w.state.roster.nodes[ev.Node]; n != nil {
			t.affected = t.running(ev.Node)
		}
	case job.Cancel, job.Joined, job.TimedOut:
		t.affected = t.running(everyNode)
	default: // it announces nothing
	}
}

// running returns the live attempts on a node, or on all nodes, that have neither failed nor been
// ordered to stop.
func (t *truth) running(node string) (list []attemptOf) {
	for unit, attempt := range t.newest {
		at := attemptOf{unit, attempt}
		if p := (place{at, node}); (t.ordered[p] == nil || t.away[p]) && node != everyNode || t.w.state.ending.result != nil {
			continue
		}
		if len(t.failed[at]) == 0 && !t.allHeard(at) && !t.stops(at) {
			list = append(list, at)
		}
	}
	return list
}

// stops reports whether an attempt was ordered to stop.
func (t *truth) stops(at attemptOf) bool {
	for p := range t.told {
		if p.attemptOf == at {
			return true
		}
	}
	return false
}

// checkDepartures checks that ranks get a notice of each end that is earlier than all known ends,
// and are stopped when the first end is due.
func (t *truth) checkDepartures(ev job.Event, actions []job.Action) error {
	switch ev := ev.(type) {
	case job.Draining:
		return t.checkForewarned(departing{t.affected, ev.Within, false}, false, actions)
	case job.Cancel:
		if ev.Within > 0 {
			return t.checkForewarned(departing{t.affected, ev.Within, true}, ev.Loose, actions)
		}
	case job.TimedOut:
		if ev.Kind == job.AlarmDeparture {
			return t.checkOverdue(ev.Seq, actions)
		}
		if ev.Kind == job.AlarmGrow {
			return t.checkGrows(actions)
		}
	case job.Joined:
		return t.checkGrows(actions)
	case job.Ready, job.Stopped:
		return t.checkHeeded(actions)
	default: // it announces nothing
	}
	return nil
}

// checkHeeded checks that if ranks are stopped without a failure and before any deadline, all of
// them are ready.
func (t *truth) checkHeeded(actions []job.Action) error {
	for _, a := range actions {
		o, ok := a.(job.Stop)
		at := attemptOf{o.Unit, o.Attempt}
		if !ok || t.w.state.ending.result != nil || len(t.failed[at]) > 0 {
			continue
		}
		for p := range t.ordered {
			if p.attemptOf == at && !t.ended[p] && !t.readied[p] {
				return fmt.Errorf("%v, and %v is not ready", o, p)
			}
		}
	}
	return nil
}

// checkGrows checks an event after which the job may grow.
func (t *truth) checkGrows(actions []job.Action) error {
	if within := t.w.spec.DrainTime; slices.ContainsFunc(actions, func(a job.Action) bool { return isA[job.Notice](a) || isA[job.Stop](a) }) {
		return t.checkForewarned(departing{t.affected, within, true}, false, actions)
	}
	return nil
}

func (t *truth) checkForewarned(d departing, loose bool, actions []job.Action) error {
	for _, a := range actions {
		if a, ok := a.(job.Alarm); ok && a.Kind == job.AlarmDeparture {
			if loose || a.For != d.within {
				return fmt.Errorf("%v for what has %v, loose: %v", a, d.within, loose)
			}
			t.departs[a.Seq] = d
		}
	}
	for _, at := range d.attempts {
		limit, warned := t.limits[at]
		news := d.within > 0 && (!warned || d.within < limit)
		for p := range t.ordered {
			if p.attemptOf != at || t.ended[p] {
				continue
			}
			if d.within <= 0 && !t.told[p] {
				return fmt.Errorf("%v is not stopped", p)
			}
			if news && !t.readied[p] && !slices.ContainsFunc(actions, func(a job.Action) bool { return told(a, p, d.within) }) {
				return fmt.Errorf("%v gets no notice that it has %v", p, d.within)
			}
		}
		if warned && news {
			t.seen["a sooner departure"] = true
		}
		if news {
			t.limits[at] = d.within
		}
		if d.within > 0 && !loose && !t.alarmed(at, d.within) {
			return fmt.Errorf("%v is not stopped within %v", at, d.within)
		}
	}
	return nil
}

func told(a job.Action, p place, within time.Duration) bool {
	n, ok := a.(job.Notice)
	return ok && n.Within == within && n.Node == p.node && n.Unit == p.unit && n.Attempt == p.attempt
}

// alarmed reports whether an alarm within that time will stop an attempt.
func (t *truth) alarmed(at attemptOf, within time.Duration) bool {
	for _, d := range t.departs {
		if d.within <= within && slices.Contains(d.attempts, at) {
			return true
		}
	}
	return false
}

func (t *truth) checkOverdue(seq int, actions []job.Action) error {
	d := t.departs[seq]
	delete(t.departs, seq)
	for _, a := range actions {
		if o, ok := a.(job.Stop); ok && !slices.Contains(d.attempts, attemptOf{o.Unit, o.Attempt}) && !(d.every && t.expires) {
			return fmt.Errorf("%v, whose time is not over", o)
		}
	}
	for _, at := range d.attempts {
		for p := range t.ordered {
			if p.attemptOf == at && t.newest[p.unit] == p.attempt && !t.ended[p] && !t.told[p] && !t.allHeard(at) {
				return fmt.Errorf("%v goes on when its time is over", p)
			}
		}
	}
	return nil
}
