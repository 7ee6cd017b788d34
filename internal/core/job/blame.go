package job

import (
	"cmp"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// fault is why an attempt failed, as far as is known: until nothing of the attempt lives, a better cause may come. What follows is
// decided then, once, for all units that failed with it.
type fault struct {
	Failure
	// others are further nodes that are to blame.
	others []string
	// told says that the rank had been told to stop before it ended.
	told    bool
	decided bool
	// departs says that it is no failure: the ranks were stopped for a [departure].
	departs bool
	// weighed are the ranks of the attempt whose failures were weighed against each other, until it is decided.
	weighed map[int]bool
}

// maxWeighed bounds the ranks whose failures are weighed of all that fails together, until what follows is decided.
const maxWeighed = 64

func (s *State) fault(f Failure) *fault {
	f.Verdict = s.judge(f)
	return &fault{Failure: f}
}

// judge is what a failure means by itself.
func (s *State) judge(f Failure) verdict.Verdict {
	switch {
	case f.Hung:
		return verdict.Hang
	case f.Rank < 0:
		return verdict.NodeLost
	}
	return verdict.Judge(evidence(f), s.ownRules()...)
}

// failure is what the newest attempt of a unit failed of, and what that means by all that is known.
func (u *unit) failure() Failure {
	f := u.cause.Failure
	if v := u.deserted(); v.Cause != "" {
		f.Verdict = v
	}
	return f
}

// Judged is the verdict on the failure that the newest step reported, as far as was known then. It
// is zero if the step reported none, or one that does not bear on what an attempt failed of.
func (s *State) Judged() verdict.Verdict { return s.step.judged }

// Evidence is what is known of a rank that ended.
func (e Exited) Evidence() verdict.Evidence {
	return verdict.Evidence{
		Exit: e.Exit, Tail: e.Tail, Traceback: e.Traceback, Kernel: e.Kernel, Node: e.Node, Rank: e.Rank, Attempt: e.Attempt,
		Lived: e.Lived, Step: e.Step,
	}
}

// evidence is of a rank.
func evidence(f Failure) verdict.Evidence {
	return verdict.Evidence{
		Exit: f.Exit, Tail: f.Tail, Traceback: f.Traceback, Node: f.Node, Rank: f.Rank, Attempt: f.Attempt, Lived: f.Lived, Step: f.Step,
		Kernel: f.Kernel,
	}
}

// blame weighs a further failure of an attempt that is being stopped, and says so when it is the cause.
func (s *State) blame(u *unit, f Failure, ev Exited) string {
	if !s.weighs(u, f.Rank) {
		return s.ignore()
	}
	s.weigh(u.cause, f.Rank)
	if !ev.Told {
		u.cause.Further++
	}
	if ev.Alike { // and later than what it is like
		return ""
	}
	other := s.fault(f)
	other.told = ev.Told
	s.step.judged = other.Verdict
	return s.explain(u, other)
}

// weighs says that a further failure of that rank bears on what a unit's attempt failed of, unless the job ends for another reason.
func (s *State) weighs(u *unit, rank int) bool {
	old := u.cause
	if old == nil || old.decided || old.weighed[rank] || s.verdicts.weighed >= maxWeighed {
		return false
	}
	return s.ending.result == nil || s.ending.fatal == u.id
}

func (s *State) weigh(f *fault, rank int) {
	if f.weighed == nil {
		f.weighed = map[int]bool{}
	}
	f.weighed[rank] = true
	s.verdicts.weighed++
}

// Weighs says that what a rank has left behind (Tail, Traceback and Kernel of its end) can bear on what its failure means. What cannot is
// not looked at, and need not be kept.
func (s *State) Weighs(ev Exited) bool {
	u, _, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || ev.Exit.OK() {
		return false
	}
	if _, ok := bundle(s.share(u, sl.NodeRank), ev.Rank); !ok || s.progress.done[ev.Rank] {
		return false
	}
	if u.phase == Running && s.ending.result == nil {
		return s.verdicts.weighed < maxWeighed && !u.excused(ev.Exit)
	}
	return s.weighs(u, ev.Rank)
}

// explain has a unit's attempt fail of another fault, if that is a better explanation.
func (s *State) explain(u *unit, other *fault) string {
	old := u.cause
	if !other.precedes(old) {
		return ""
	}
	other.Further, other.weighed = other.Further+old.Further, old.weighed
	u.cause = other
	switch {
	case s.ending.result != nil:
		s.ending.result.Ending = s.endingOf(other)
		s.ending.result.Code = s.exitCode(s.ending.result.Ending, code(other.Failure))
		s.ending.result.Reason = s.lament(u)
		return s.ending.result.Reason
	case other.Rank < 0:
		return "that is the cause"
	}
	return "the cause is rather that " + other.Why
}

// outside says that what failed is neither the program nor a node.
func (f *fault) outside() bool { return f != nil && f.Verdict.Action == verdict.Wait }

// precedes says that a failure is a better explanation of an attempt's end than an older report. The echo of another failure explains
// nothing, as opposed to the loss of a node. What a rank does that was told to stop explains something only if there is nothing else,
// and its words are known. Otherwise what came first counts.
func (f *fault) precedes(old *fault) bool {
	known := f.Verdict.Cause != verdict.Unknown && f.Verdict.Quote != ""
	switch {
	case old.Exit.Spawn != "":
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

// code is the exit code of a job that ends with a failure.
func code(f Failure) int {
	switch {
	case f.Hung:
		return codeTimeout
	case f.Rank < 0:
		return codeOwn
	}
	return cmp.Or(f.Exit.Code, codeOwn)
}

// decide says what follows a failure once all that is known of it has come: a restart and its price, or the end of the job.
func (s *State) decide(u *unit) string {
	f := u.cause
	f.decided = true
	s.verdicts.weighed -= len(f.weighed)
	if f.Rank >= 0 && !f.Hung {
		s.verdicts.recurrence, f.Verdict = s.verdicts.recurrence.Next(evidence(f.Failure), s.ownRules()...)
	}
	s.shun(f)
	free := s.free(f)
	if why := s.final(f, free); why != "" {
		return s.failed(u, why)
	}
	s.budget.restarts++
	s.budget.streak++
	price := "restart at no cost: it is the node's fault"
	if !free {
		s.budget.spent++
		price = fmt.Sprintf("restart %d of %d", s.budget.spent, s.spec.MaxRestarts)
	}
	return also(u.deserted().Quote, also(price, s.suspect(f)))
}

// free says that the budget bears nothing of a failure: the first that a node is to blame for.
func (s *State) free(f *fault) bool {
	return (f.Rank < 0 && !f.Hung || f.Verdict.Action == verdict.Replace) && s.suspects.blamed[f.Node] == 0
}

// final says why a failure is not followed by a restart; it is empty when it is. What could not be started would fail again.
func (s *State) final(f *fault, free bool) string {
	switch {
	case f.Rank >= 0 && s.verdicts.recurrence.Count >= verdict.Repeats:
		return fmt.Sprintf("the same failure %d times in a row, without progress (%s)", s.verdicts.recurrence.Count, f.Verdict.Cause)
	case f.Verdict.Action == verdict.Stop && f.Exit.Spawn == "":
		return fmt.Sprintf("a restart would not help (%s)", f.Verdict.Cause)
	case !free && s.budget.spent >= s.spec.MaxRestarts:
		return fmt.Sprintf("%d of %d restarts used", s.budget.spent, s.spec.MaxRestarts)
	}
	return s.hopeless(f)
}

// hopeless is final where that is plain from the first report on.
func (s *State) hopeless(f *fault) string {
	switch {
	case f.Exit.Spawn != "":
		return "a restart would not help"
	case s.spec.Restart == RestartNever:
		return "restarts are off"
	case s.spec.MaxRestarts == 0:
		return "0 of 0 restarts used"
	}
	return ""
}

// failed ends the job for the failure of a unit, which is its cause as it is known when nothing lives any more.
func (s *State) failed(u *unit, why string) string {
	f := u.cause
	if f.Verdict.Cause == unreachable.Cause {
		why = also(why, f.Verdict.Remedy)
	}
	s.ending.fatal, s.ending.why = u.id, why
	return s.end(Result{Code: code(f.Failure), Ending: s.endingOf(f), Reason: s.lament(u)})
}

// lament is why the job has failed, of the attempt of a unit.
func (s *State) lament(u *unit) string { return "job failed: " + also(u.blamed(), s.ending.why) }

// blamed is what the newest attempt of a unit failed of.
func (u *unit) blamed() string { return also(u.cause.Why, u.deserted().Quote) }

// endingOf is what a job ends for that a failure ends.
func (s *State) endingOf(f *fault) report.Ending {
	switch v := f.Verdict; {
	case f.Rank < 0 && !f.Hung, v.Action == verdict.Replace:
		return report.EndInfrastructure
	case v.Cause == "preempted" || v.Cause == "time-limit":
		return report.EndPreempted
	case v.Cause == verdict.Quit:
		return report.EndCancelled
	case f.Exit.Spawn != "", v.Action == verdict.Stop, s.verdicts.recurrence.Count >= verdict.Repeats:
		return report.EndProgram
	}
	return report.EndBudget
}

// early is a rank that exited 0 while others of its attempt ran, and how many more did after it.
type early struct {
	rank, more int
	node       string
	at         time.Time
}

// leaves hears of such a rank, perhaps after the failure of a rank on another node that happened later.
func (u *unit) leaves(ev Exited) {
	switch e := u.early; {
	case e == nil:
		u.early = &early{ev.Rank, 0, ev.Node, ev.At}
	case ev.At.Before(e.at):
		u.early = &early{ev.Rank, e.more + 1, ev.Node, ev.At}
	default:
		e.more++
	}
}

// deserted is the verdict on the echo of another failure before which a rank had left: the lost peer
// ended well, but too soon. It is zero where no rank had.
func (u *unit) deserted() verdict.Verdict {
	f, e := u.cause, u.early
	if !f.Verdict.Victim || e == nil || !e.at.Before(f.At) {
		return verdict.Verdict{}
	}
	return verdict.EarlyExit(e.rank, e.node, e.more, f.At.Sub(e.at))
}
