package verdict

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestTwins checks that a failure is a twin of an earlier one if the two differ only in facts that
// are each rank's own.
func TestTwins(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	oom := func(rank int) report.Failure {
		return report.Failure{Exit: report.Exit{Code: 1}, Rank: rank, Tail: fmt.Sprintf("[rank%d]: torch.OutOfMemoryError: CUDA out of memory. GPU %d has %d MiB free", rank, rank, 100+rank)}
	}
	var known Twins
	for i, c := range []struct {
		of   report.Failure
		at   int
		want bool
	}{
		{oom(0), 5, false},
		{oom(1), 6, true},
		{oom(2), 4, false}, // this failure may be the cause
		{oom(3), 4, true},
		{report.Failure{Exit: report.Exit{Code: 1}, Tail: "ValueError: bad shape"}, 7, false},
		{report.Failure{Exit: report.Exit{Code: 2}, Tail: "odd words"}, 7, false},
		{report.Failure{Exit: report.Exit{Code: 3}, Tail: "odd words"}, 7, false},
		{report.Failure{Exit: report.Exit{Code: 2}, Tail: "odd words"}, 8, true},
	} {
		c.of.At = at(c.at)
		if got := known.Known(c.of); got != c.want {
			t.Errorf("failure %d: known: %v", i, got)
		}
	}
}

// TestTwinsHaveOneVerdict checks that the evidence that is not reported would not have changed the
// verdict.
func TestTwinsHaveOneVerdict(t *testing.T) {
	words := rapid.SampledFrom([]string{
		"torch.OutOfMemoryError: CUDA out of memory.", "RuntimeError: [3] is setting up NCCL communicator", "NCCL WARN connection closed by remote peer",
		"[Rank 1] Watchdog caught collective operation timeout", "ValueError: 12 is not 13", "Killed", "step 10", "",
	})
	rapid.Check(t, func(t *rapid.T) {
		var known Twins
		reported := map[string]bool{}
		for i := range rapid.IntRange(1, 8).Draw(t, "ranks") {
			e := report.Failure{Exit: report.Exit{Code: rapid.IntRange(1, 2).Draw(t, "code")}, Tail: words.Draw(t, "first") + "\n" + words.Draw(t, "last"), At: time.Unix(int64(i), 0)}
			v := Judge(e)
			what := fmt.Sprint(v.Cause, v.Action, v.Victim, e.Exit.Code)
			if v.Cause != Unknown {
				what = fmt.Sprint(v.Cause, v.Action, v.Victim)
			}
			if known.Known(e) && !reported[what] {
				t.Fatalf("%q is not reported, and nothing like %s was", e.Tail, what)
			}
			reported[what] = true
		}
	})
}
