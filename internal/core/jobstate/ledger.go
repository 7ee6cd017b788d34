package jobstate

import (
	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
)

// Changes says how the ranks of units use their time since the newest step. The ledger knows the
// time of the step.
func (s *State) Changes() []goodput.Change { return s.step.changes }

// spending is how the ranks of a unit use their time in a phase. In the phase Running, they count
// as starting until all of them have started.
func spending(p job.Phase) goodput.Use {
	switch p {
	case job.Preparing, job.Running:
		return goodput.Starting
	case job.Stopping:
		return goodput.Stopping
	case job.Backoff:
		return goodput.Backoff
	case job.Finished:
		return goodput.Over
	}
	return goodput.Waiting
}

// pass moves a unit to a phase.
func (s *State) pass(u *unit, to job.Phase) {
	u.enter(to)
	if to == job.Backoff {
		s.saves.abandon(u.id)
	}
	s.spend(u, spending(to))
}

func (s *State) spend(u *unit, use goodput.Use) {
	c := goodput.Change{Unit: u.id, Ranks: s.size(u), To: use}
	if use == goodput.Backoff {
		c.Cause, c.Node = u.culprit()
	}
	c.Imported = u.imports.Waited
	s.step.note(c)
}

// spendLast records the last change of a unit, at the end of the job.
func (s *State) spendLast(u *unit) {
	if u.live > 0 {
		s.spend(u, goodput.Stopping)
	} else {
		s.spend(u, goodput.Over)
	}
}

func (s *State) spendNothing(units []unit) {
	for i := range units {
		s.spend(&units[i], goodput.Over)
	}
}

// stepped reports a gang's newest step to the ledger. Units that restart on their own have no
// common step.
func (s *State) stepped(ev job.Stepped) string {
	if _, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt); !ok || ev.Step <= 0 || !s.gang() || sl.NodeRank != 0 {
		return s.step.ignore()
	}
	s.step.note(goodput.Change{Step: ev.Step, Ago: ev.Ago})
	return ""
}

// culprit says why a unit was stopped, and which node is to blame.
func (u *unit) culprit() (cause, node string) {
	f := u.cause
	switch {
	case u.grows():
		return "growth", ""
	case f.departs:
		return "drain", f.Node
	case f.wholeHang(), f.Verdict.Victim:
		return u.failure().Verdict.Cause, ""
	}
	return f.Verdict.Cause, f.Node
}
