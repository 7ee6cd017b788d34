package replica

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
)

// TimerID identifies a deadline. A newer deadline replaces an older one with the same TimerID.
type TimerID struct {
	// Of names the job or, for the readmission of a node, the node.
	Of   string
	Kind job.AlarmKind
	// Number is the unit that backs off, or the Seq of an alarm of a departure; 0 for other
	// deadlines.
	Number int
}

// These deadlines are not alarms of jobs: a unit's next attempt, and the end of the time for which
// a node is avoided.
const (
	attempt     job.AlarmKind = "attempt"
	readmission job.AlarmKind = "readmission"
)

// Timer is a deadline.
type Timer struct {
	At time.Time
	// Seq is the alarm's number, or the attempt that is due.
	Seq int
}

// Due returns the event that follows when a timer's deadline has come.
func (id TimerID) Due(t Timer) cluster.Event {
	switch id.Kind {
	case readmission:
		return cluster.Readmit{Node: id.Of}
	case attempt:
		return cluster.Happened{Job: id.Of, Event: job.Elapsed{Unit: id.Number, Attempt: t.Seq}}
	}
	return cluster.Happened{Job: id.Of, Event: job.TimedOut{Kind: id.Kind, Seq: t.Seq}}
}

func (s *State) arm(at time.Time, id TimerID, limit time.Duration, seq int, o *Outcome) {
	s.Timers[id] = Timer{At: at.Add(limit), Seq: seq}
	o.Armed = append(o.Armed, id)
}

// alarm sets the deadline that a job asks for, if there is a limit.
func (s *State) alarm(at time.Time, j *Record, a job.Alarm, o *Outcome) {
	id, limit := TimerID{Of: j.Job.ID, Kind: a.Kind}, j.LastCall
	switch a.Kind {
	case job.AlarmDeparture, job.AlarmSave:
		id.Number, limit = a.Seq, a.For // there may be several, each with its own time
	case job.AlarmPlacement:
		limit = j.PlacementTimeout
	case job.AlarmRefill:
		limit = j.Job.RefillAfter
	case job.AlarmGrow:
		limit = j.Job.GrowAfter
	case job.AlarmExclusion:
		limit = j.Job.ExcludeFor
		j.Readmits = at.Add(limit)
	case job.AlarmLastCall:
	}
	if limit > 0 || a.Kind == job.AlarmLastCall {
		s.arm(at, id, limit, a.Seq, o)
	}
}

// expired forgets the timer that made an event due, and reports whether there was one.
func (s *State) expired(ev cluster.Happened) bool {
	switch due := ev.Event.(type) {
	case job.Elapsed:
		return s.disarm(TimerID{Of: ev.Job, Kind: attempt, Number: due.Unit}, due.Attempt)
	case job.TimedOut:
		one := s.disarm(TimerID{Of: ev.Job, Kind: due.Kind}, due.Seq)
		return s.disarm(TimerID{Of: ev.Job, Kind: due.Kind, Number: due.Seq}, due.Seq) || one
	default: // no timer made the event due
		return false
	}
}

func (s *State) disarm(id TimerID, seq int) bool {
	t, out := s.Timers[id]
	if out = out && t.Seq == seq; out {
		delete(s.Timers, id)
	}
	return out
}

// wait returns the wait before a restart. There is none after a departure.
func (j *Record) wait(a job.Wait) time.Duration {
	switch {
	case a.Long:
		return j.BackoffMax
	case j.BackoffMin <= 0 || a.Restarts == 0:
		return 0
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(j.BackoffMin), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(max(j.BackoffMin, j.BackoffMax)), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	wait := b.NextBackOff()
	for range min(a.Restarts, 64) - 1 {
		wait = b.NextBackOff()
	}
	return time.Duration(float64(wait) * (1 + j.jitter(a)))
}

// jitter varies the wait by up to a tenth, so that jobs that failed together do not restart
// together. The jitter is the same each time the log is read.
func (j *Record) jitter(a job.Wait) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.Job.ID + "/" + strconv.Itoa(a.Unit) + "/" + strconv.Itoa(a.Attempt))) // never fails
	return (float64(h.Sum64()>>11)/(1<<53) - 0.5) / 5
}
