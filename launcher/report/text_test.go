package report

import (
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	rank := Failure{Node: "n1", Rank: 3, Attempt: 2, Why: "rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)"}
	words, traced, meant, unable := rank, rank, rank, rank
	words.Tail = "1\n2\n\n3  \n4\n5\nCUDA error\n\n"
	traced.Tail, traced.Traceback = "not shown", "Traceback (most recent call last):\n  boom"
	meant.Tail = strings.Repeat("é", 200) + "\nModuleNotFoundError: No module named 'x'\n"
	// The last words do not change the cause in the report, since the report does not judge them
	// again.
	meant.Verdict = Verdict{
		Action: "wait", Cause: "licence", Title: "a rule of your own", Quote: "ModuleNotFoundError: No module named 'x'", Remedy: "ask for a seat",
	}
	unable.Exit.Spawn, unable.Verdict = "not there", Verdict{Action: "stop", Cause: "not-started", Title: "it could not", Quote: "not there", Remedy: "mend it"}
	goodput := &Goodput{
		Unit: "GPU", Goodput: 0.75, Hours: 2, Training: 1.5, Backoff: 0.5, Interruptions: 1,
		Costs: []Cost{{Cause: "gpu-lost", Node: "n1", Interruptions: 1, Hours: 0.5}},
	}
	long := &Start{Phases: []StartPhase{
		{Phase: PhaseNodes, Seconds: 0.1, Node: "n1"},
		{Phase: PhaseImports, Seconds: 4},
		{Phase: PhaseStore, Seconds: 7, Rank: new(1)},
		{Phase: PhaseStep, Seconds: 1, Node: "n1", Rank: new(0)},
	}}
	for _, c := range []struct {
		name   string
		result Result
		logs   string
		want   string
	}{
		{"success", Result{Reason: "job succeeded: 4 ranks exited 0"}, "/logs", "job succeeded: 4 ranks exited 0"},
		{"silence", Result{Code: 137, Ending: EndBudget, Reason: "job failed: " + rank.Why, Cause: &rank}, "/logs", `job failed: rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)
  ending    budget: it has failed more often than it may (exit code 137)
  logs      /logs`},
		{"last words", Result{Code: 1, Reason: "job failed: x", Cause: &words}, "/logs", `  | 2
  | 3
  | 4
  | 5
  | CUDA error
job failed: x
  failed    rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)
  ending    exit code 1
  logs      /logs`},
		{"a traceback", Result{Code: 1, Reason: "job failed: " + rank.Why, Cause: &traced}, "", `  | Traceback (most recent call last):
  |   boom
job failed: rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)
  ending    exit code 1`},
		{"what it means", Result{Code: 1, Ending: EndProgram, Reason: "job failed: " + rank.Why, Cause: &meant, Goodput: goodput}, "/logs", "  | " + strings.Repeat("é", 150) + `...
  | ModuleNotFoundError: No module named 'x'
job failed: rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)
  cause     licence: a rule of your own
  evidence  ModuleNotFoundError: No module named 'x'
  advice    wait: ask for a seat
  ending    program: it would fail again (exit code 1); goodput 75.0 % of 2.0 GPU-hours
  logs      /logs`},
		{"what could not be started", Result{Code: 127, Ending: EndProgram, Reason: "job failed: " + rank.Why + " not there", Cause: &unable}, "", `job failed: rank 3 on n1 (gpu 3) died of SIGKILL (out of memory) not there
  cause     not-started: it could not
  advice    stop: mend it
  ending    program: it would fail again (exit code 127)`},
		{
			"a restart",
			Result{Reason: "job succeeded: 4 ranks exited 0 after 1 restart", Goodput: goodput},
			"/logs",
			`job succeeded: 4 ranks exited 0 after 1 restart
  goodput   75.0 % of 2.0 GPU-hours; 1 interruption cost 0.500: 0.500 gpu-lost (n1)`,
		},
		{"a short job", Result{Reason: "job succeeded: 1 rank exited 0", Goodput: &Goodput{Unit: "GPU", Hours: 0.1}}, "/logs", "job succeeded: 1 rank exited 0"},
		{"a long start", Result{Reason: "job succeeded: 2 ranks exited 0", Start: long}, "", `job succeeded: 2 ranks exited 0
  start     12.1 s: 4.0 s imports by the fork server, 7.0 s until all ranks had connected to the store (last rank 1), 1.0 s until the first step`},
		{"a short start", Result{Reason: "job succeeded: 1 rank exited 0", Start: &Start{Phases: []StartPhase{{Phase: PhaseNodes, Seconds: 9}}}}, "", "job succeeded: 1 rank exited 0"},
		{"cancelled", Result{Code: 130, Ending: EndCancelled, Reason: "job cancelled: got SIGINT"}, "/logs", `job cancelled: got SIGINT
  ending    cancelled (exit code 130)
  logs      /logs`},
	} {
		if got := c.result.Report(c.logs); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestSaves(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	last := &Save{Path: "/c/step-4", Step: 4, Bytes: 3 << 20, Began: now.Add(-time.Minute), Ended: now.Add(-50 * time.Second)}
	saves := Saves{Last: last, InFlight: &Save{Path: "/c/step-8", Step: 8, Began: now}, AtRisk: 60}
	want := "saved step 4 in /c/step-4, 3.0 MiB, 10 s, 50 s ago; saving step 8 in /c/step-8; a stop loses 60 s of work"
	if got := saves.Text(now); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
