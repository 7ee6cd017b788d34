package launcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

func TestSuccess(t *testing.T) {
	job, out, _ := marked(t, 2, `echo rank $RANK of $WORLD_SIZE; echo aside >&2; cat`)
	result, err := launcher.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if g := result.Goodput; g == nil || g.Unit != "rank" || g.Hours <= 0 || g.Interruptions != 0 || g.Costs != nil {
		t.Errorf("goodput %+v", g)
	}
	if s := result.Start; s == nil || s.Attempt != 0 || len(s.Phases) == 0 {
		t.Errorf("start %+v", s)
	}
	want := report.Result{Ending: "success", Reason: "job succeeded: 2 ranks exited 0", Attempts: 1, Goodput: result.Goodput, Start: result.Start}
	if result != want {
		t.Errorf("%+v, want %+v", result, want)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	if want := []string{"[r0 n1] rank 0 of 2", "[r1 n1] rank 1 of 2"}; !slices.Equal(lines, want) {
		t.Errorf("stdout has %q, want %q", lines, want)
	}
}

func TestFailure(t *testing.T) {
	job, _, words := marked(t, 2, `[ $RANK = 1 ] || exec sleep 1000
echo '{"message": {"message": "E: boom", "extraInfo": {"py_callstack": "Traceback: boom"}}}' >$TORCHELASTIC_ERROR_FILE
echo the last words >&2; exit 7`)
	job.Restarts.Max = 1
	before := time.Now()
	result, err := launcher.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 7 || result.Attempts != 2 || result.Restarts != 1 || result.Cause == nil {
		t.Fatalf("%+v, want code 7 and a cause after 2 attempts and 1 restart", result)
	}
	cause := *result.Cause
	if cause.At.Before(before) || cause.At.After(time.Now()) {
		t.Errorf("the failure was at %v, which is not during the job", cause.At)
	}
	if cause.Lived <= 0 || cause.Lived > time.Since(before) {
		t.Errorf("the rank lived for %v", cause.Lived)
	}
	cause.At, cause.Lived = time.Time{}, 0
	want := report.Failure{
		Node: "n1", Rank: 1, Attempt: 1, Why: "rank 1 on n1 exited with code 7", Tail: "the last words", Traceback: "Traceback: boom",
	}
	want.Exit.Code = 7
	want.Verdict = report.Verdict{
		Action: "restart", Cause: "unknown", Title: "no rule recognises it", From: "exit",
		Remedy: "read the rank's log; add a rule for it to --failure-rules",
	}
	if cause != want {
		t.Errorf("cause %+v\nwant  %+v", cause, want)
	}
	for _, part := range []string{want.Why, "Traceback: boom", "(exit code 7)", "logs      " + job.Output.LogDir} {
		if !strings.Contains(words.String(), part) {
			t.Errorf("the report does not have %q:\n%s", part, words)
		}
	}
}

// TestDecisionIsReported checks that the report says what the coordinator decided, by the job's own
// rules and after three equal failures in a row.
func TestDecisionIsReported(t *testing.T) {
	job, _, words := marked(t, 1, `echo "AssertionError: no seat is free" >&2; exit 1`)
	job.Restarts.Max, job.Health.FailureRules = 5, filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(job.Health.FailureRules, []byte("restart licence /no seat is free/ ask for one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := launcher.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	v := result.Cause.Verdict
	if v.Cause != "licence" || v.Action != "stop" || !strings.HasPrefix(v.Remedy, "it happened 3 times in a row") {
		t.Errorf("verdict %+v", v)
	}
	for _, text := range []string{words.String(), result.Report("")} {
		if !strings.Contains(text, "cause     licence: ") || !strings.Contains(text, "advice    stop: "+v.Remedy+"\n") {
			t.Errorf("the report is\n%s", text)
		}
	}
}

func TestDeathOfASignal(t *testing.T) {
	job, _, _ := marked(t, 1, `kill -9 $$`)
	result, err := launcher.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 137 || result.Cause == nil || result.Cause.Exit.Signal != 9 {
		t.Errorf("%+v, want code 137 and signal 9", result)
	}
}

// TestCancelled: after a stop, one rank of the job ends in order, and golaunch must kill the other.
func TestCancelled(t *testing.T) {
	job, out, _ := marked(t, 2, `[ $RANK = 0 ] && trap 'echo saved; exit 0' TERM || trap 'echo stays' TERM
echo up $RANK; while :; do sleep 1000 & wait $!; done`)
	job.Stopping.Grace = 300 * time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	var told time.Time
	go func() {
		out.await(t, "up 0")
		out.await(t, "up 1")
		told = time.Now()
		cancel(errors.New("it is enough"))
	}()
	result, err := launcher.Run(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 130 || result.Reason != "job cancelled: it is enough" || result.Cause != nil {
		t.Errorf("%+v, want code 130, the reason of the context and no cause", result)
	}
	if took := time.Since(told); took < job.Stopping.Grace {
		t.Errorf("a rank that would not end was killed after %v, before the grace period of %v", took, job.Stopping.Grace)
	}
	for _, want := range []string{"[r0 n1] saved\n", "[r1 n1] stays\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestNoGrace(t *testing.T) {
	job, out, _ := marked(t, 1, `trap 'sleep 1000' TERM; echo up; while :; do sleep 1000 & wait $!; done`)
	job.Stopping.Grace = -1
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		out.await(t, "up")
		cancel()
	}()
	if result, err := launcher.Run(ctx, job); err != nil || result.Code != 130 {
		t.Errorf("code %d (%v), want 130", result.Code, err)
	}
}

func TestDeadline(t *testing.T) {
	job, _, _ := marked(t, 1, `exec sleep 1000`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	result, err := launcher.Run(ctx, job)
	if err != nil || result.Code != 124 || result.Reason != "job cancelled: context deadline exceeded" {
		t.Errorf("%+v (%v), want code 124", result, err)
	}
}

func TestCancelledBeforeItBegins(t *testing.T) {
	for _, simulate := range []bool{false, true} {
		job, out, _ := marked(t, 1, `echo up; exec sleep 1000`)
		job.Resources.Simulate = simulate
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		result, err := launcher.Run(ctx, job)
		if err != nil || result.Code != 130 || out.String() != "" {
			t.Errorf("simulate %v: %+v (%v), printed %q, want code 130 and nothing", simulate, result, err, out)
		}
	}
}

func TestObserve(t *testing.T) {
	job, _, words := marked(t, 2, `exit $((RANK == 0 && GOLAUNCH_ATTEMPT == 0))`)
	job.Restarts.Max = 1
	var seen []report.Decision // needs no lock, because calls of Observe never overlap
	job.Output.Observe = func(d report.Decision) { seen = append(seen, d) }
	result, err := launcher.Run(t.Context(), job)
	if err != nil || result.Code != 0 {
		t.Fatalf("%+v (%v)", result, err)
	}
	var reasons []string
	for i, d := range seen {
		if i > 0 && d.At.Before(seen[i-1].At) {
			t.Errorf("decision %q comes after %q, but was before", d.Reason, seen[i-1].Reason)
		}
		reasons = append(reasons, d.Reason)
	}
	all := strings.Join(reasons, "\n")
	rest := all
	for _, part := range []string{
		"waiting for 1 of 1 node; none is here", "attempt 0: starting 2 ranks, master 127.0.0.1:",
		"rank 0 on n1 exited with code 1", "restart 1 of 1", "attempt 1 follows after a backoff", "attempt 1: starting 2 ranks",
		"job succeeded: 2 ranks exited 0 after 1 restart",
	} {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("no %q, in this order, in:\n%s", part, all)
		}
		rest = after
	}
	if want := "golaunch: " + result.Report("") + "\n"; strings.ReplaceAll(words.String(), "golaunch:   ", "  ") != want {
		t.Errorf("stderr has %q, want the report alone: %q", words, want)
	}
}

func TestJSON(t *testing.T) {
	job, _, words := marked(t, 1, `exit 3`)
	job.Output.JSON = true
	if result, err := launcher.Run(t.Context(), job); err != nil || result.Code != 3 {
		t.Fatalf("code %d (%v)", result.Code, err)
	}
	var last struct {
		Format int `json:"format_version"`
		Time   time.Time
		Reason string
		Result *report.Result
	}
	for line := range strings.Lines(words.String()) {
		if err := json.Unmarshal([]byte(line), &last); err != nil || last.Format != 1 || last.Time.IsZero() || (last.Reason == "") == (last.Result == nil) {
			t.Errorf("%q (%v), want an object with a time and a reason or a result", line, err)
		}
		last.Reason = ""
	}
	if last.Result == nil || last.Result.Cause == nil || last.Result.Cause.Exit.Code != 3 {
		t.Errorf("the last line has no result with its cause:\n%s", words)
	}
}

// TestSignals stops a job in order, and then, when a person keeps on pressing ^C, at once.
func TestSignals(t *testing.T) {
	job, out, words := marked(t, 1, `trap 'echo told' TERM USR1; echo up; while :; do sleep 1000 & wait $!; done`)
	job.Stopping.Grace = time.Hour
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	job.Stopping.Signals = signals
	go func() {
		out.await(t, "up")
		words.await(t, "attempt 0 runs")
		signals <- syscall.SIGUSR1
		out.await(t, "told")
		signals <- syscall.SIGTERM
		words.await(t, "job cancelled: got SIGTERM")
		out.await(t, "told\n[r0 n1] told")
		for presses := time.Tick(50 * time.Millisecond); ; {
			select {
			case <-presses:
				signals <- syscall.SIGINT
			case <-ended:
				return
			}
		}
	}()
	job.Output.Prefix = new(true)
	result, err := launcher.Run(t.Context(), job)
	close(ended)
	if err != nil || result.Code != 143 {
		t.Errorf("code %d (%v), want 143", result.Code, err)
	}
}

// TestTwoAtOnce runs two jobs at the same time. The ranks of each wait for the other job.
func TestTwoAtOnce(t *testing.T) {
	meet := t.TempDir()
	var both sync.WaitGroup
	for _, names := range [][2]string{{"one", "other"}, {"other", "one"}} {
		job, out, _ := marked(t, 2, `mkfifo `+names[0]+`.$RANK; echo `+names[0]+` >`+names[0]+`.$RANK &
until [ -p `+names[1]+`.$RANK ]; do sleep 0.01; done; read word <`+names[1]+`.$RANK; echo $word; wait`)
		job.Dir = meet
		both.Go(func() {
			result, err := launcher.Run(t.Context(), job)
			if err != nil || result.Code != 0 {
				t.Errorf("job %s: %+v (%v)", names[0], result, err)
			}
			if got := strings.Count(out.String(), "] "+names[1]+"\n"); got != 2 {
				t.Errorf("job %s printed:\n%s", names[0], out)
			}
		})
	}
	both.Wait()
}

// TestChildrenOfItsOwn runs a job in a program that has other child processes. Some of them look
// like processes of a job.
func TestChildrenOfItsOwn(t *testing.T) {
	stay := exec.Command("sleep", "1000")
	stay.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stay.Start(); err != nil {
		t.Fatal(err)
	}
	defer stay.Wait()
	defer stay.Process.Kill()
	job, out, _ := marked(t, 2, `echo up $RANK; while ! [ -e go ]; do sleep 0.01; done; setsid sleep 1000 & exit 0`)
	job.Dir = t.TempDir()
	done := make(chan report.Result, 1)
	go func() {
		result, err := launcher.Run(t.Context(), job)
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	out.await(t, "up 0")
	for range 20 {
		child := exec.Command("sh", "-c", "sleep 0.01; exit 3")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Run(); child.ProcessState == nil || child.ProcessState.ExitCode() != 3 {
			t.Errorf("a child that exits with 3 ended with: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(job.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if result := <-done; result.Code != 0 {
		t.Errorf("%+v", result)
	}
	if err := stay.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a child that is not the job's is gone: %v", err)
	}
}

// TestAFileInThePlaceOfLogs: golaunch fails before it starts a rank, because a file is where the
// directory of logs should be.
func TestAFileInThePlaceOfLogs(t *testing.T) {
	job, out, _ := marked(t, 1, `echo started`)
	job.Output.LogDir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(job.Output.LogDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := launcher.Run(t.Context(), job)
	if err == nil || !strings.Contains(err.Error(), "--log-dir") || result.Code != 125 || out.String() != "" {
		t.Errorf("code %d, error %v, printed %q; want 125 and a way out", result.Code, err, out)
	}
}
