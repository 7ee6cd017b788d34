package jobstate

import (
	"cmp"
	"fmt"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// fault is the known reason why an attempt failed. A better explanation may replace it until no
// process of the attempt lives. The job then decides what follows, once for all units that share
// the fault.
type fault struct {
	report.Failure
	// others are further nodes that are to blame.
	others []string
	// told says that the rank was told to stop before it ended.
	told    bool
	decided bool
	// departs says that there was no failure: the ranks were stopped for a [departure].
	departs bool
	// weighed are the ranks whose failures were weighed as the reason why the attempt failed, until
	// the fault is decided.
	weighed map[int]bool
}

func (f *fault) addFurther() { f.Further++ }

// clone returns the same fault for another unit.
func (f *fault) clone() *fault {
	c := *f
	c.weighed = nil
	return &c
}

// replaces makes the fault the explanation instead of an older fault.
func (f *fault) replaces(old *fault) {
	f.Further += old.Further
	f.weighed = old.weighed
}

// started reports whether the process could be started at all.
func (f *fault) started() bool { return f.Exit.Started() }

// nodeLost reports whether the fault is the loss of a node, or of the connection to it.
func (f *fault) nodeLost() bool { return f.Rank < 0 && !f.Hung }

// wholeHang reports whether all ranks hang and none is behind the others.
func (f *fault) wholeHang() bool { return f.Rank < 0 && f.Hung }

// outside reports whether something other than the program or a node failed.
func (f *fault) outside() bool { return f != nil && f.Verdict.Action == report.ActionWait }

// unreachable reports whether nodes did not reach the master.
func (f *fault) unreachable() bool { return f != nil && f.Verdict.Cause == verdict.Unreachable.Cause }

// precedes reports whether a failure is a better explanation of an attempt's end than an older
// report. The echo of another failure explains nothing; the loss of a node does explain the end.
// The failure of a rank that was told to stop counts only if there is no other failure and the
// rank's last words are known. Otherwise the first failure counts.
func (f *fault) precedes(old *fault) bool {
	written := f.Verdict.From != "" && f.Verdict.From != report.FromExit || !f.started()
	known := f.Verdict.Cause != verdict.Unknown && written
	switch {
	case !old.started():
		return false
	case f.Verdict.Victim:
		return old.Verdict.Victim && !f.told && f.At.Before(old.At)
	case old.Verdict.Victim:
		return !f.told || known
	case f.told || old.Rank < 0 || f.Rank < 0:
		return false
	}
	return f.At.Before(old.At)
}

// verdicts decides what failures mean.
type verdicts struct {
	// weighed counts the ranks whose failures were weighed but not decided.
	weighed int
	// rules are the user's own rules, parsed when first needed.
	rules []verdict.Rule `snapshot:"-"`
}

// maxWeighed bounds how many of the ranks that fail together are weighed.
const maxWeighed = 64

func (v *verdicts) full() bool { return v.weighed >= maxWeighed }

// weigh notes that a rank's failure was weighed as the reason of a fault.
func (v *verdicts) weigh(f *fault, rank int) {
	if f.weighed == nil {
		f.weighed = map[int]bool{}
	}
	f.weighed[rank] = true
	v.weighed++
}

// decide subtracts the ranks of a fault from the weighed ones.
func (v *verdicts) decide(f *fault) {
	f.decided = true
	v.weighed -= len(f.weighed)
}

// judge returns the verdict on a single failure.
func (v *verdicts) judge(f report.Failure, rules string) report.Verdict {
	switch {
	case f.Hung:
		return verdict.Hang
	case f.Rank < 0:
		return verdict.NodeLost
	}
	return verdict.Judge(f, v.parsed(rules)...)
}

// parsed are the user's own rules. They were checked when the job was submitted, so they parse.
func (v *verdicts) parsed(rules string) []verdict.Rule {
	if v.rules == nil && rules != "" {
		v.rules, _ = verdict.Parse("--failure-rules", rules)
	}
	return v.rules
}

func (s *State) fault(f report.Failure) *fault {
	f.Verdict = s.verdicts.judge(f, s.spec.Rules)
	return &fault{Failure: f}
}

// failure is the reason why the newest attempt of a unit failed, with the verdict on all evidence.
func (u *unit) failure() report.Failure {
	f := u.cause.Failure
	if v, ok := u.deserted(); ok {
		f.Verdict = v
	}
	return f
}

// Judged is the verdict on the failure that the newest step reported, from the evidence known at
// that step. It is zero if the step reported no failure, or a failure that cannot be the reason why
// an attempt failed.
func (s *State) Judged() report.Verdict { return s.step.judged }

// blame weighs a further failure of an attempt that is being stopped, and reports it if it is the
// cause.
func (s *State) blame(u *unit, f report.Failure, ev job.Exited) string {
	if !s.weighs(u, f.Rank) {
		return s.step.ignore()
	}
	s.verdicts.weigh(u.cause, f.Rank)
	if !ev.Told {
		u.cause.addFurther()
	}
	if ev.Alike { // an agent reports it after the failure that it resembles
		return ""
	}
	other := s.fault(f)
	other.told = ev.Told
	s.step.judge(other.Verdict)
	return s.explain(u, other)
}

// weighs reports whether a further failure of a rank may be the reason why the unit's attempt
// failed. The failure does not matter if the job ends for another reason.
func (s *State) weighs(u *unit, rank int) bool {
	old := u.cause
	if old == nil || old.decided || old.weighed[rank] || s.verdicts.full() {
		return false
	}
	return !s.decided() || s.ending.fatal == u.id
}

// Weighs reports whether the evidence of a rank (Tail, Traceback and Kernel) can change the verdict
// on a failure. Otherwise the evidence is not read and need not be kept.
func (s *State) Weighs(ev job.Exited) bool {
	u, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || ev.Exit.OK() {
		return false
	}
	if _, ok := bundle(s.groupAt(u, sl.NodeRank), ev.Rank); !ok || s.progress.done[ev.Rank] {
		return false
	}
	if u.phase == job.Running && !s.decided() {
		return !s.verdicts.full() && !u.excuses(ev)
	}
	return s.weighs(u, ev.Rank)
}

// explain attributes a unit's failure to another fault, if the other fault explains the failure
// better.
func (s *State) explain(u *unit, other *fault) string {
	old := u.cause
	if !other.precedes(old) {
		return ""
	}
	other.replaces(old)
	u.stopFor(other)
	switch {
	case s.decided():
		ending := s.endingOf(u, other)
		s.ending.reword(ending, s.exitCode(ending, code(other.Failure)), s.failureText(u))
		return s.ending.result.Reason
	case other.Rank < 0:
		return "that is the cause"
	}
	return "the cause is rather that " + other.Why
}

// code is the exit code of a job that ends with a failure.
func code(f report.Failure) int {
	switch {
	case f.Hung:
		return codeTimeout
	case f.Rank < 0:
		return codeOwn
	}
	return cmp.Or(f.Exit.Code, codeOwn)
}

// decide decides what follows a failure once all evidence is there: a restart and its cost to the
// budget, or the end of the job.
func (s *State) decide(u *unit) string {
	f := u.cause
	s.verdicts.decide(f)
	if f.Rank >= 0 && !f.Hung {
		f.Verdict = s.tallyOf(u).recur(f.Failure, s.verdicts.parsed(s.spec.Rules))
	}
	s.quarantine(f)
	free := s.free(f)
	t := s.tallyOf(u)
	if r := s.refuse(t, f, free); r.final {
		return s.failed(u, r)
	}
	s.budget.restart()
	t.restart(free)
	price := "restart at no cost: it is the node's fault"
	if !free {
		price = fmt.Sprintf("restart %d of %d", t.spent, s.spec.MaxRestarts)
	}
	early, _ := u.deserted()
	return words.Also(early.Quote, words.Also(price, s.suspect(f)))
}

// free reports whether a failure costs nothing, because it is the first for which its node is to
// blame.
func (s *State) free(f *fault) bool {
	return (f.nodeLost() || f.Verdict.Action == report.ActionReplace) && s.suspects.blamed[f.Node] == 0
}

// refusal says whether the failure is final, so that no restart follows, and why.
type refusal struct {
	final bool
	text  string
}

// refuse decides whether no restart follows a failure, and says why.
func (s *State) refuse(t *tally, f *fault, free bool) refusal {
	switch {
	case f.Rank >= 0 && t.repeated():
		return refusal{true, fmt.Sprintf("the same failure %d times in a row, without progress (%s)",
			t.recurrence.Count, f.Verdict.Cause)}
	case f.Verdict.Action == report.ActionStop && f.started():
		return refusal{true, fmt.Sprintf("a restart would not help (%s)", f.Verdict.Cause)}
	case !free && t.spent >= s.spec.MaxRestarts:
		return refusal{true, fmt.Sprintf("%d of %d restarts used", t.spent, s.spec.MaxRestarts)}
	}
	return s.refuseAtOnce(f)
}

// refuseAtOnce is refuse for those reasons that need no further evidence. A rank that could not be
// started, for example, would fail again.
func (s *State) refuseAtOnce(f *fault) refusal {
	switch {
	case !f.started():
		return refusal{true, "a restart would not help"}
	case s.spec.Restart == job.RestartNever:
		return refusal{true, "restarts are off"}
	case s.spec.MaxRestarts == 0:
		return refusal{true, "0 of 0 restarts used"}
	}
	return refusal{}
}

// failed ends the job because a unit failed, or abandons the unit if the job can do without it. The
// cause may still change until no process lives.
func (s *State) failed(u *unit, r refusal) string {
	f := u.cause
	if f.unreachable() {
		r.text = words.Also(r.text, f.Verdict.Remedy)
	}
	if s.expendable(u) {
		return s.abandon(u, words.Also(u.causeText(), r.text))
	}
	s.ending.putDownTo(u.id, r.text)
	return s.end(report.Result{Code: code(f.Failure), Ending: s.endingOf(u, f), Reason: s.failureText(u)})
}

// failureText says why the job has failed, if a unit is the reason.
func (s *State) failureText(u *unit) string {
	return "job failed: " + words.Also(u.causeText(), s.ending.why)
}

// causeText says why the newest attempt of a unit failed.
func (u *unit) causeText() string {
	early, _ := u.deserted()
	return words.Also(u.cause.Why, early.Quote)
}

// endingOf is the Ending of a job that ends with a failure.
func (s *State) endingOf(u *unit, f *fault) report.Ending {
	switch v := f.Verdict; {
	case f.nodeLost(), v.Action == report.ActionReplace:
		return report.EndInfrastructure
	case v.Cause == causePreempted, v.Cause == causeTimeLimit:
		return report.EndPreempted
	case v.Cause == verdict.Quit:
		return report.EndCancelled
	case !f.started(), v.Action == report.ActionStop, s.tallyOf(u).repeated():
		return report.EndProgram
	}
	return report.EndBudget
}

// These causes of package verdict mean that the scheduler takes the nodes.
const (
	causePreempted = "preempted"
	causeTimeLimit = "time-limit"
)

// deserted is the verdict on a unit's failure that is an echo, if a rank that the others still
// needed had exited 0 before.
func (u *unit) deserted() (report.Verdict, bool) { return u.early.Explains(u.cause.Failure) }

// bundle finds a rank in a group. The ranks of a group are consecutive.
func bundle(g placement.Group, rank int) (placement.Bundle, bool) {
	if i := rank - g.Bundles[0].Rank; i >= 0 && i < len(g.Bundles) {
		return g.Bundles[i], true
	}
	return placement.Bundle{}, false
}
