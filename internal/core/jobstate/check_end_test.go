package jobstate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

func (t *truth) checkFinish(ev job.Event, r report.Result) error {
	if t.result != nil {
		return fmt.Errorf("a second time")
	}
	t.result = &r
	for p := range t.ordered {
		if t.newest[p.unit] == p.attempt && !t.ended[p] {
			return fmt.Errorf("unit %d attempt %d may live on %s", p.unit, p.attempt, p.node)
		}
	}
	if t.anyAlive() {
		return fmt.Errorf("processes live")
	}
	if r.Restarts > t.budget() {
		return fmt.Errorf("%d restarts", r.Restarts)
	}
	switch {
	case r.Cause != nil && strings.Contains(r.Cause.Why, " leaves: ") && strings.Contains(r.Reason, "restarts used") && t.w.spec.MaxRestarts > 0:
		return fmt.Errorf("what was announced before is charged")
	case strings.Contains(r.Reason, "cannot reach") && len(t.newest) > 0 && !strings.Contains(r.Reason, "restarts used"):
		return fmt.Errorf("it has run, and restarts are left")
	case r.Code == codeExpired && (!t.expires || r.Ending != report.EndPreempted || r.Cause != nil):
		return fmt.Errorf("expires: %v", t.expires)
	case t.cancelled != (r.Code == codeCancelled):
		return fmt.Errorf("cancelled: %v", t.cancelled)
	case r.Code == 0 && t.expires:
		return fmt.Errorf("it was stopped before its ranks ended")
	case r.Code == 0:
		return t.checkSuccess()
	case r.Code == codeTimeout && !hung(r.Cause):
		if out, ok := ev.(job.TimedOut); (!ok || out.Seq != t.alarms[job.AlarmPlacement]) && !isA[job.Stopped](ev) && !isA[job.Lost](ev) {
			return fmt.Errorf("no limit is over")
		}
	}
	return t.checkCause(r)
}

// healthy reports whether all newest attempts are without a reported failure.
func (t *truth) healthy() bool {
	for unit, attempt := range t.newest {
		at := attemptOf{unit, attempt}
		if _, failed := t.failed[at]; failed && !t.evacuated[at] {
			return false
		}
	}
	return true
}

// budget is how many restarts were allowed. For each node, one restart costs nothing.
func (t *truth) budget() int {
	return t.w.spec.MaxRestarts*(1+t.refills) + min(t.free, len(t.w.agents)*(1+t.refills+t.readmits))
}

// checkSuccess checks that every rank's newest attempt exited 0 and lost no node.
func (t *truth) checkSuccess() error {
	total := 0
	for p, list := range t.ordered {
		if t.newest[p.unit] != p.attempt {
			continue
		}
		if _, failed := t.failed[p.attemptOf]; failed {
			return fmt.Errorf("but unit %d attempt %d failed", p.unit, p.attempt)
		}
		for _, rank := range list {
			if e, ok := t.exits[p.attemptOf][rank]; (!ok || !e.OK()) && !t.lost[p.attemptOf][rank] {
				return fmt.Errorf("but rank %d: %v", rank, e)
			}
			total++
		}
	}
	if r := t.w.spec.Request; total < ranks(r, r.MinNodes) {
		return fmt.Errorf("with only %d ranks", total)
	}
	return nil
}

// checkCause checks that a gang's failure is attributed to a reported failure: to the first failure
// that is no echo and happened before its rank was stopped, else to a failure after the stop, else
// to an echo.
func (t *truth) checkCause(r report.Result) error {
	if r.Cause == nil || !t.w.state.gang() || strings.Contains(r.Cause.Why, "no port") || strings.Contains(r.Cause.Why, "cannot reach") {
		return nil
	}
	if hung := t.hung[attemptOf{0, r.Cause.Attempt}]; hung || r.Cause.Hung {
		if hung != r.Cause.Hung || r.Code != codeTimeout && r.Code != codeOwn && t.cancels == 0 {
			return fmt.Errorf("hung: %v, code %d", hung, r.Code)
		}
		return nil
	}
	all := t.failed[attemptOf{0, r.Cause.Attempt}]
	if t.evacuated[attemptOf{0, r.Cause.Attempt}] {
		return nil
	}
	i := slices.IndexFunc(all, func(f reported) bool { return f.rank == r.Cause.Rank })
	if i < 0 && t.unable[r.Cause.Node] && r.Cause.Exit.Spawn != "" {
		return nil
	}
	if i < 0 && r.Cause.Verdict == verdict.NodeLost && r.Cause.Attempt == r.Attempts && strings.Contains(r.Reason, r.Cause.Why) {
		return nil // the loss prevented that attempt
	}
	if i < 0 {
		return fmt.Errorf("cause is rank %d, which did not fail", r.Cause.Rank)
	}
	if r.Cause.Rank >= 0 && r.Code != r.Cause.Exit.Code && r.Code != codeOwn && r.Code != codeTimeout && t.cancels == 0 {
		return fmt.Errorf("code %d for %v", r.Code, r.Cause.Exit)
	}
	if t.cancels > 0 || r.Code == codeTimeout || r.Cause.Exit.Spawn != "" || all[0].rank < 0 {
		return nil
	}
	for _, f := range all {
		if f.better(all[i]) {
			return fmt.Errorf("cause is %+v, and there is %+v", all[i], f)
		}
	}
	return nil
}

// better reports whether a failure explains more than an earlier report.
func (f reported) better(cause reported) bool {
	switch {
	case f.rank < 0:
		return cause.tail == echo
	case cause.tail == echo:
		return f.tail != echo && (!f.told || f.tail != "")
	case f.tail == echo || f.told:
		return false
	}
	return cause.told || cause.rank >= 0 && f.at.Before(cause.at)
}
func hung(f *report.Failure) bool { return f != nil && f.Hung }
