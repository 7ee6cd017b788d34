package jobstate

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
)

// maxInFlight bounds the checkpoints that ranks write at the same time.
const maxInFlight = 16

// saves are the checkpoints of a job.
type saves struct {
	// last is the newest complete checkpoint. every is the time between the last two checkpoints.
	last  *report.Save
	every time.Duration
	// inFlight are the checkpoints that ranks write, the newest last.
	inFlight []inFlight
}

// inFlight is a checkpoint that is being written. writers have not proved it complete yet. failed
// says that one of them has given up.
type inFlight struct {
	report.Save
	writers []writer
	failed  bool
}

// writer names the ranks of a unit on one node, which write a checkpoint.
type writer struct {
	node string
	unit int
}

// find returns the index of a checkpoint among those in flight.
func (s *saves) find(path string) int {
	return slices.IndexFunc(s.inFlight, func(f inFlight) bool { return f.Path == path })
}

func (s *saves) begin(save report.Save, w writer) {
	i := s.find(save.Path)
	if i < 0 {
		if len(s.inFlight) == maxInFlight {
			s.inFlight = slices.Delete(s.inFlight, 0, 1)
		}
		s.inFlight, i = append(s.inFlight, inFlight{Save: save}), len(s.inFlight)
	}
	if f := &s.inFlight[i]; !slices.Contains(f.writers, w) {
		f.writers = append(f.writers, w)
		if save.Began.Before(f.Began) {
			f.Began = save.Began
		}
	}
}

// prove takes a node's proof, and returns the checkpoint if the proof completes it. In a directory
// that all nodes share, one proof is enough. Elsewhere each node that wrote a part must prove its
// own part.
func (s *saves) prove(save report.Save, by writer, shared bool) (whole report.Save, complete bool) {
	if i := s.find(save.Path); i >= 0 {
		f := &s.inFlight[i]
		if f.Began.Before(save.Began) {
			save.Began = f.Began
		}
		if !shared {
			save.Bytes = max(save.Bytes, f.Bytes)
			f.Bytes = save.Bytes
		}
		f.writers = slices.DeleteFunc(f.writers, func(w writer) bool { return w == by })
		failed := f.failed && !shared
		if len(f.writers) > 0 && !shared {
			return save, false
		}
		if s.inFlight = slices.Delete(s.inFlight, i, i+1); failed {
			return save, false
		}
	}
	if s.last != nil && (!s.last.Began.Before(save.Began) || s.repeats(save)) {
		return save, false
	}
	// Agents have not given up older checkpoints yet.
	s.drop(func(f inFlight, w writer) bool { return w.unit == by.unit && f.Began.Before(save.Began) })
	return save, true
}

// drop forgets writers, and checkpoints that then have no writers.
func (s *saves) drop(those func(inFlight, writer) bool) {
	for i := range s.inFlight {
		f := &s.inFlight[i]
		f.writers = slices.DeleteFunc(f.writers, func(w writer) bool { return those(*f, w) })
	}
	s.inFlight = slices.DeleteFunc(s.inFlight, func(f inFlight) bool { return len(f.writers) == 0 })
}

// sameFor is how much the clocks of two nodes that prove one save may differ.
const sameFor = time.Second

// repeats reports whether a save is the newest one, reported by another node. A further save to the
// same path would begin after the newest one has ended.
func (s *saves) repeats(save report.Save) bool {
	return save.Path == s.last.Path && save.Began.Before(s.last.Ended.Add(sameFor))
}

// keep records the newest complete checkpoint.
func (s *saves) keep(save report.Save) {
	if s.last != nil {
		s.every = save.Began.Sub(s.last.Began)
	}
	s.last = &save
}

// fail notes that a writer has given up a checkpoint. It forgets the checkpoint once each of its
// writers has proved it or given it up.
func (s *saves) fail(path string, by writer) {
	if i := s.find(path); i >= 0 {
		f := &s.inFlight[i]
		f.failed = true
		f.writers = slices.DeleteFunc(f.writers, func(w writer) bool { return w == by })
		if len(f.writers) == 0 {
			s.inFlight = slices.Delete(s.inFlight, i, i+1)
		}
	}
}

// abandon forgets the checkpoints that a unit has in flight, because its ranks have ended.
func (s *saves) abandon(unit int) {
	s.drop(func(_ inFlight, w writer) bool { return w.unit == unit })
}

// writes reports whether a unit has a checkpoint in flight.
func (s *saves) writes(unit int) bool {
	return slices.ContainsFunc(s.inFlight, func(f inFlight) bool {
		return slices.ContainsFunc(f.writers, func(w writer) bool { return w.unit == unit })
	})
}

// saved records the progress of a checkpoint.
func (s *State) saved(ev job.Saved) string {
	if ev.State == job.SaveLeft || ev.State == job.SaveSetAside {
		return s.found(ev)
	}
	u, _, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.phase != job.Running && u.phase != job.Stopping {
		return s.step.ignore()
	}
	by, text := writer{ev.Node, ev.Unit}, ""
	switch ev.State {
	case job.SaveBegan:
		s.saves.begin(saveOf(ev), by)
		return ""
	case job.SaveComplete:
		save, complete := s.saves.prove(saveOf(ev), by, ev.Shared)
		if !complete {
			break
		}
		s.saves.keep(save)
		text = s.landed(u, save.Ended)
		if s.gang() {
			s.step.note(goodput.Change{Saved: true, Ago: ev.Ago + save.Ended.Sub(save.Began)})
		}
	case job.SavePartial:
		s.saves.fail(ev.Path, by)
		text = fmt.Sprintf("the checkpoint %s is not complete: %s", ev.Path, ev.Why)
	case job.SaveUnknown:
		s.saves.fail(ev.Path, by)
		text = fmt.Sprintf("whether the checkpoint %s is complete is not known: %s", ev.Path, ev.Why)
	default:
		return s.step.ignore()
	}
	return words.Also(text, s.stopWhenSaved(u))
}

// found reports a partial checkpoint that a node finds at the start of an attempt, before or while
// the ranks run.
func (s *State) found(ev job.Saved) string {
	n := s.roster.nodes[ev.Node]
	if n == nil || n.nodeRank == spare || ev.Unit < 0 || ev.Unit >= len(s.progress.units) || s.progress.units[ev.Unit].attempt != ev.Attempt {
		return s.step.ignore()
	}
	if ev.State == job.SaveSetAside {
		dir, name := path.Split(ev.Path)
		return fmt.Sprintf("the checkpoint %s is set aside as %s: %s", ev.Path, path.Join(dir, "partial", name), ev.Why)
	}
	return fmt.Sprintf("the newest checkpoint %s is not complete: %s; a program that takes the newest one loads it", ev.Path, ev.Why)
}

// saveOf returns the checkpoint that an event describes.
func saveOf(e job.Saved) report.Save {
	save := report.Save{Path: e.Path, Format: e.Format, Step: e.Step, Bytes: e.Bytes}
	if e.State == job.SaveBegan {
		save.Began = e.At.Add(-e.Ago)
		return save
	}
	save.Ended = e.At.Add(-e.Ago)
	save.Began = save.Ended.Add(-e.Took)
	return save
}

// Saves returns the known checkpoints of the job. It is nil if none is known and no user has asked
// for a checkpoint.
func (s *State) Saves() *report.Saves {
	if s.saves.last == nil && len(s.saves.inFlight) == 0 && !s.departures.toSave {
		return nil
	}
	all := report.Saves{Every: s.saves.every.Seconds(), AfterNotice: s.afterNotice()}
	if s.saves.last != nil {
		last := *s.saves.last
		all.Last = &last
	}
	if n := len(s.saves.inFlight); n > 0 {
		now := s.saves.inFlight[n-1].Save
		all.InFlight = &now
	}
	return &all
}
