package launcher

import (
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 987e6, time.UTC)
	rank := Failure{Node: "n1", Rank: 3, Attempt: 2, At: at, Why: "rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)"}
	words, traced, meant := rank, rank, rank
	meant.Exit.Code, meant.Tail = 1, "ModuleNotFoundError: No module named 'x'\n"
	words.Tail = "loading\nCUDA error\n"
	traced.Tail, traced.Traceback = "not shown", "Traceback (most recent call last):\n  boom"
	for _, c := range []struct {
		name   string
		result Result
		logs   string
		want   string
	}{
		{"success", Result{Reason: "job succeeded: 4 ranks exited 0"}, "/logs", "job succeeded: 4 ranks exited 0"},
		{"silence", Result{Code: 137, Reason: "job failed: it died", Cause: &rank}, "/logs", `job failed: it died
  first failure  rank 3 on n1 (gpu 3) died of SIGKILL (out of memory), attempt 2, at 2026-05-04 03:02:01.987 UTC
  exit code      137
  logs           /logs`},
		{"last words", Result{Code: 1, Reason: "job failed: x", Cause: &words}, "/logs", `job failed: x
  first failure  rank 3 on n1 (gpu 3) died of SIGKILL (out of memory), attempt 2, at 2026-05-04 03:02:01.987 UTC
  last words
    loading
    CUDA error
  exit code      1
  logs           /logs`},
		{"a traceback", Result{Code: 1, Reason: "job failed: x", Cause: &traced}, "", `job failed: x
  first failure  rank 3 on n1 (gpu 3) died of SIGKILL (out of memory), attempt 2, at 2026-05-04 03:02:01.987 UTC
  traceback
    Traceback (most recent call last):
      boom
  exit code      1`},
		{"what it means", Result{Code: 1, Reason: "job failed: x", Cause: &meant}, "", `job failed: x
  first failure  rank 3 on n1 (gpu 3) died of SIGKILL (out of memory), attempt 2, at 2026-05-04 03:02:01.987 UTC
  cause          import-error: ModuleNotFoundError: No module named 'x' (stop: install it on every node, or look at which python ` +
			`and PYTHONPATH the ranks have)
  last words
    ModuleNotFoundError: No module named 'x'
  exit code      1`},
		{
			"a lost node",
			Result{Code: 125, Reason: "job failed: n1 was lost", Cause: &Failure{Node: "n1", Rank: -1, Why: "n1 was lost"}},
			"/logs",
			`job failed: n1 was lost
  first failure  n1 was lost, attempt 0
  exit code      125
  logs           /logs`,
		},
		{
			"a restart", Result{Reason: "job succeeded: 4 ranks exited 0 after 1 restart", Goodput: &Goodput{
				Unit: "GPU", Goodput: 0.75, Hours: 2, Training: 1.5, Backoff: 0.5, Interruptions: 1,
				Costs: []Cost{{Cause: "gpu-lost", Node: "n1", Interruptions: 1, Hours: 0.5}},
			}}, "/logs", `job succeeded: 4 ranks exited 0 after 1 restart
  goodput        75.0 % of 2.0 GPU-hours; 1 interruption cost 0.500: 0.500 gpu-lost (n1)`,
		},
		{"a short job", Result{Reason: "job succeeded: 1 rank exited 0", Goodput: &Goodput{Unit: "GPU", Hours: 0.1}}, "/logs", "job succeeded: 1 rank exited 0"},
		{"cancelled", Result{Code: 130, Reason: "job cancelled: got SIGINT"}, "/logs", `job cancelled: got SIGINT
  exit code      130
  logs           /logs`},
	} {
		if got := c.result.Report(c.logs); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}
