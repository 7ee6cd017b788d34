package jobstate

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestDecisionIsInTheResult lets jobs of two nodes with 8 ranks each fail, and checks the decision
// in their results.
func TestDecisionIsInTheResult(t *testing.T) {
	at := time.Unix(1000, 0)
	exit := func(node string, rank, code int, second time.Duration, tail string) job.Exited {
		return job.Exited{Node: node, Rank: rank, Exit: report.Exit{Code: code}, At: at.Add(second * time.Second), Tail: tail}
	}
	const lost = "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.1]:1\n"
	for _, c := range []struct {
		name   string
		spec   func(*job.Spec)
		events []job.Event
		want   report.Verdict
	}{
		{
			"what its words mean", nil,
			[]job.Event{exit("n1", 8, 1, 1, "CUDA out of memory")},
			report.Verdict{Action: report.ActionStop, Cause: "cuda-oom", Quote: "CUDA out of memory"},
		},
		{
			"by a rule of the job's own", func(s *job.Spec) { s.Rules = "wait full /CUDA out of memory/ ask" },
			[]job.Event{exit("n1", 8, 1, 1, "CUDA out of memory")},
			report.Verdict{Action: report.ActionWait, Cause: "full", Quote: "CUDA out of memory"},
		},
		{
			"what explains an echo", nil,
			[]job.Event{exit("n0", 0, 1, 1, lost), exit("n1", 8, 1, 2, "CUDA out of memory")},
			report.Verdict{Action: report.ActionStop, Cause: "cuda-oom", Quote: "CUDA out of memory"},
		},
		{
			"a rank that left before its peers lost it", nil,
			[]job.Event{exit("n0", 0, 0, 1, ""), exit("n1", 8, 1, 3, lost)},
			report.Verdict{Action: report.ActionRestart, Cause: "early-exit", Quote: "rank 0 on n0 had exited with code 0 2s before"},
		},
		{
			"that the coordinator learns later", nil,
			[]job.Event{exit("n1", 8, 1, 3, lost), exit("n0", 0, 0, 1, "")},
			report.Verdict{Action: report.ActionRestart, Cause: "early-exit", Quote: "rank 0 on n0 had exited with code 0 2s before"},
		},
		{
			"a rank that left before another failed by itself", nil,
			[]job.Event{exit("n0", 0, 0, 1, ""), exit("n1", 8, 1, 3, "KeyError: 'x'\nCUDA out of memory")},
			report.Verdict{Action: report.ActionStop, Cause: "cuda-oom", Quote: "CUDA out of memory"},
		},
		{
			"a lost node", nil,
			[]job.Event{job.Lost{Node: "n1", Why: "its connection broke"}},
			report.Verdict{Action: report.ActionReplace, Cause: "node-lost"},
		},
		{
			"a hang", nil, []job.Event{
				job.Stalled{Node: "n0", Ranks: []job.Still{{Rank: 0, For: time.Minute, Step: -1}}},
				job.Stalled{Node: "n1", Ranks: []job.Still{{Rank: 8, For: time.Minute, Step: -1}}},
			}, report.Verdict{Action: report.ActionRestart, Cause: "hang"},
		},
		{
			"a user left the debugger", nil,
			[]job.Event{exit("n0", 0, 1, 1, "bdb.BdbQuit")},
			report.Verdict{Action: report.ActionStop, Cause: verdict.Quit, Quote: "bdb.BdbQuit"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := runningJob(t, job.RestartNever, 2)
			if c.spec != nil {
				c.spec(&s.spec)
			}
			var result *report.Result
			step := func(ev job.Event) {
				for _, a := range first(s.Step(ev)) {
					if end, ends := a.(job.Finish); ends {
						result = &end.Result
					}
				}
			}
			for _, ev := range c.events {
				step(ev)
			}
			for _, sl := range s.plan.slots {
				step(job.Stopped{Node: sl.Node.Name})
			}
			if result == nil || result.Cause == nil {
				t.Fatalf("%+v", result)
			}
			v := result.Cause.Verdict
			if v.Action != c.want.Action || v.Cause != c.want.Cause || v.Quote != c.want.Quote || v.Victim || v.Title == "" || v.Remedy == "" {
				t.Errorf("%+v, want %+v", v, c.want)
			}
			if (result.Ending == report.EndCancelled) != (v.Cause == verdict.Quit) {
				t.Errorf("ending %s of %s", result.Ending, v.Cause)
			}
		})
	}
}

// first returns the actions of a step.
func first(actions []job.Action, _ string) []job.Action { return actions }

// TestDecisionCountsRepeats checks that no restart follows the third failure of a kind, and that
// the result says so.
func TestDecisionCountsRepeats(t *testing.T) {
	s := runningJob(t, job.RestartJob, 2)
	for attempt := range verdict.Repeats {
		if attempt > 0 {
			s.Step(job.Elapsed{Attempt: attempt})
			s.Step(job.Prepared{Node: "n0", Attempt: attempt, Port: 1000})
			s.Step(job.Reached{Node: "n1", Seq: s.masters.questions})
		}
		s.Step(job.Exited{Node: "n1", Attempt: attempt, Rank: 8, Exit: report.Exit{Code: 1}, At: time.Unix(1000, 0), Tail: "AssertionError: x"})
		if v := s.Judged(); v.Cause != "assertion" {
			t.Errorf("attempt %d began to fail of %+v", attempt, v)
		}
		for _, node := range []string{"n0", "n1"} {
			s.Step(job.Stopped{Node: node, Attempt: attempt})
		}
	}
	if s.ending.result == nil || s.ending.result.Ending != report.EndProgram {
		t.Fatalf("%+v", s.ending.result)
	}
	if v := s.outcome().Cause.Verdict; v.Action != report.ActionStop || v.Cause != "assertion" {
		t.Errorf("%+v", v)
	}
}

// TestOwnUnreachable checks that a user's rule with the cause unreachable does not exclude a node
// as if it had really not reached the master.
func TestOwnUnreachable(t *testing.T) {
	for action, excludes := range map[string]bool{"restart": false, "replace": true} {
		s := runningJob(t, job.RestartJob, 2)
		s.spec.ExcludeAfter, s.spec.ExcludeFor = 2, time.Hour
		s.spec.Rules = action + " unreachable /no route/ look at the route\n"
		s.Step(job.Exited{Node: "n1", Rank: 8, Exit: report.Exit{Code: 1}, At: time.Unix(1000, 0), Tail: "no route"})
		for _, node := range []string{"n0", "n1"} {
			s.Step(job.Stopped{Node: node})
		}
		if s.Phase() != job.Backoff || s.Excludes("n1") != excludes {
			t.Errorf("%s: %s, n1 is excluded: %v", action, s.Phase(), s.Excludes("n1"))
		}
	}
}
