package termination

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

func TestTerminationLine(t *testing.T) {
	rank := report.Failure{Node: "n1", Rank: 3, Attempt: 2, Exit: failedExit(7), Why: "rank 3 on n1 (gpu 3) exited with code 7"}
	late := rank
	late.Exit = failedExit(124)
	gone := report.Failure{Node: "n1", Rank: -1, Attempt: 3, Why: "n1 was lost: its agent has died", Verdict: verdict.NodeLost}
	broken := errors.New("node n0 has not heard the coordinator at n1:29400 for 15s")
	for name, c := range map[string]struct {
		result report.Result
		err    error
		joined bool
		want   string
	}{
		"a success": {
			report.Result{Reason: "job succeeded: 4 ranks exited 0", Restarts: 1},
			nil, true,
			`succeeded code=0 node=n0 restarts=1/3 cause="job succeeded: 4 ranks exited 0"`,
		},
		"output that was not shown": {
			report.Result{Reason: "job succeeded: 1 rank exited 0"},
			errors.New("no space left"), false,
			`succeeded code=0 node=n0 restarts=0/3 cause="job succeeded: 1 rank exited 0"`,
		},
		"a rank": {
			report.Result{Code: 7, Reason: "job failed: " + rank.Why, Cause: &rank, Restarts: 3},
			nil, true,
			`failed code=7 node=n1 rank=3 attempt=2 restarts=3/3 cause="rank 3 on n1 (gpu 3) exited with code 7"`,
		},
		"a rank's own 124": {
			report.Result{Code: 124, Reason: "job failed: " + rank.Why, Cause: &late},
			nil, true,
			`failed code=124 node=n1 rank=3 attempt=2 restarts=0/3 cause="rank 3 on n1 (gpu 3) exited with code 7"`,
		},
		"a lost node": {
			report.Result{Code: 125, Reason: "job failed: n1 was lost: its agent has died", Cause: &gone},
			nil, false,
			`lost code=125 node=n1 attempt=3 restarts=0/3 cause="n1 was lost: its agent has died"`,
		},
		"a lost coordinator": {
			report.Result{Code: 125},
			broken, true,
			`lost code=125 node=n0 restarts=0/3 cause="node n0 has not heard the coordinator at n1:29400 for 15s"`,
		},
		"a refusal": {
			report.Result{Code: 125},
			errors.New("the token is wrong"), false,
			`failed code=125 node=n0 restarts=0/3 cause="the token is wrong"`,
		},
		"a timeout": {
			report.Result{Code: 124, Reason: "job timed out: waiting for 1 of 2 nodes"},
			nil, false,
			`timed-out code=124 node=n0 restarts=0/3 cause="job timed out: waiting for 1 of 2 nodes"`,
		},
		"a stop": {
			report.Result{Code: 143, Ending: report.EndCancelled, Reason: "job cancelled: got SIGTERM"},
			nil, true,
			`cancelled code=143 node=n0 restarts=0/3 cause="job cancelled: got SIGTERM"`,
		},
		"a stop of golaunch's own": {
			report.Result{Code: 125, Ending: report.EndInfrastructure, Reason: "job failed: no port"},
			nil, true,
			`failed code=125 node=n0 restarts=0/3 cause="job failed: no port"`,
		},
		"a node that left": {
			report.Result{Code: 143},
			errors.New("this node has left: got SIGTERM"), true,
			`cancelled code=143 node=n0 restarts=0/3 cause="this node has left: got SIGTERM"`,
		},
		"two lines": {
			report.Result{Code: 2},
			errors.New("bad \"job\"\nno command"), false,
			`failed code=2 node=n0 restarts=0/3 cause="bad \"job\"\nno command"`,
		},
	} {
		m := Message{Result: c.result, Err: c.err, Joined: c.joined, Node: "n0", MaxRestarts: 3}
		if got := m.line(); got != "golaunch: "+c.want+"\n" {
			t.Errorf("%s: %swant golaunch: %s", name, got, c.want)
		}
	}
}

func failedExit(code int) (e report.Exit) {
	e.Code = code
	return e
}

// TestTerminationLineIsBounded: the line is short enough even if every byte of the cause must be
// escaped.
func TestTerminationLineIsBounded(t *testing.T) {
	for _, c := range []string{"\x00", "\xff", "\u0085", "\U000e0001", "é"} {
		err := errors.New(strings.Repeat(c, 5000))
		m := Message{Result: report.Result{Code: 125}, Err: err, Joined: true, Node: strings.Repeat("n", 253), MaxRestarts: 1 << 30}
		line := m.line()
		if len(line) > 4096 || strings.Count(line, "\n") != 1 {
			t.Errorf("of %q it makes %d bytes", c, len(line))
		}
	}
}

func TestTerminationLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	m := Message{Node: "n0", Result: report.Result{Reason: "done"}}
	for range 2 { // the second line replaces the first
		if err := m.Write(path); err != nil {
			t.Error(err)
		}
	}
	want := "golaunch: succeeded code=0 node=n0 restarts=0/0 cause=\"done\"\n"
	if got, err := os.ReadFile(path); string(got) != want {
		t.Errorf("it has %q (%v), want %q", got, err, want)
	}
	if err := m.Write(filepath.Join(dir, "none", "such")); err == nil || !strings.Contains(err.Error(), "choose another file with --termination-log") {
		t.Errorf("a file that cannot be made: %v", err)
	}
	for _, path := range []string{none, ""} {
		if err := m.Write(path); err != nil {
			t.Errorf("nothing to write: %v", err)
		}
	}
}
