package postmortem

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// write makes files below a directory and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func exited(attempt, rank int, second, exit, more string) string {
	return `{"time":"2026-05-04T03:02:01Z","event":"exited","detail":{"node":"n1","attempt":` + string(rune('0'+attempt)) + `,"rank":` +
		string(rune('0'+rank)) + `,"at":"2026-05-04T03:02:` + second + `Z","exit":{` + exit + `}` + more + `}}` + "\n"
}

func TestJudge(t *testing.T) {
	const oom = "CUDA out of memory\n"
	dir := write(t, map[string]string{
		"events.jsonl": `{"event":"submitted","detail":{"task":"` + strings.Repeat("x", 2<<20) + `"}}` + "\n" +
			exited(0, 3, "01", `"code":1`, `,"tail":"No space left on device"`) +
			exited(1, 2, "03", `"code":1`, "") +
			exited(1, 0, "02", `"code":0`, "") +
			exited(1, 1, "01", `"code":1`, `,"tail":"Connection closed by peer ["`) +
			exited(1, 4, "04", `"code":143,"signal":15`, "") +
			exited(1, 5, "05", `"code":137,"signal":9,"oom":true`, "") +
			exited(1, 6, "06", `"code":1`, `,"traceback":"KeyError: 'x'\nCUDA error: unknown error"`) +
			exited(0, 7, "06", `"code":1`, "") + `{"event":"exi`,
		"attempt-1/rank-2.stderr.log": "step 1\n", "attempt-1/rank-2.stdout.log": "loading\n" + oom,
		"attempt-1/rank-4.stderr.log": oom,
	})
	all, err := Judge([]string{dir}, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		rank  int
		cause string
		file  string
		line  int
	}{
		{2, "cuda-oom", filepath.Join(dir, "attempt-1/rank-2.stdout.log"), 2},
		{5, "host-oom", "", 0},
		{6, "cuda-error", "", 2},
		{1, "gloo-peer-lost", "", 1},
	}
	if len(all) != len(want) {
		t.Fatalf("%d verdicts: %+v", len(all), all)
	}
	for i, w := range want {
		if g := all[i]; g.Rank != w.rank || g.Cause != w.cause || g.File != w.file || g.Line != w.line || g.Attempt != 1 || g.Node != "n1" {
			t.Errorf("%d: %+v, want %+v", i, g, w)
		}
	}
}

// TestJudgeUnable: a node knew that it could not start its ranks, after an attempt that failed in
// another way.
func TestJudgeUnable(t *testing.T) {
	unable := func(event string) string {
		return `{"time":"2026-05-04T03:02:05Z","event":"` + event + `","detail":{"node":"n2","unable":{"code":127,"spawn":"start \"x\": not found"},` +
			`"at":"2026-05-04T03:02:05Z"}}` + "\n"
	}
	const result = `{"event":"result","detail":{"code":127,"cause":{"node":"n2","rank":4,"attempt":1,"exit":{"code":127,"spawn":"start \"x\": not found"},` +
		`"at":"2026-05-04T03:02:05Z","gpu":0}}}` + "\n"
	for name, c := range map[string]struct {
		record        string
		rank, attempt int
	}{
		"prepared":                  {exited(0, 1, "01", `"code":1`, "") + unable("prepared") + result, 4, 1},
		"reached":                   {exited(0, 1, "01", `"code":1`, "") + unable("reached") + exited(0, 2, "06", `"code":143,"signal":15`, "") + result, 4, 1},
		"the coordinator is killed": {unable("reached"), NoRank, 0},
	} {
		dir := write(t, map[string]string{"events.jsonl": c.record, "attempt-0/rank-1.stderr.log": "CUDA out of memory\n"})
		all, err := Judge([]string{dir}, -1, nil)
		if err != nil || len(all) != 1 {
			t.Errorf("%s: %+v, %v", name, all, err)
			continue
		}
		if j := all[0]; j.Cause != "not-started" || j.Node != "n2" || j.Rank != c.rank || j.Attempt != c.attempt || j.At.Second() != 5 {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// TestJudgeLongLog checks that a line has its number in the file, although only the end of the file
// is judged.
func TestJudgeLongLog(t *testing.T) {
	dir := write(t, map[string]string{"log": strings.Repeat("0123456789\n", readTail/4) + "CUDA out of memory\nbye\n"})
	all, err := Judge([]string{filepath.Join(dir, "log")}, -1, nil)
	if err != nil || all[0].Cause != "cuda-oom" || all[0].Line != readTail/4+1 || all[0].Rank != NoRank {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestJudgeLogsRefuses(t *testing.T) {
	dir := write(t, map[string]string{"j/events.jsonl": exited(0, 1, "01", `"code":"x"`, ""), "none/x": "", "good": "CUDA out of memory"})
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"j": "is of another version of golaunch", "none": "no rank has failed there", "missing": "no such file", "fifo": "it is not a plain file",
	} {
		_, err := Judge([]string{filepath.Join(dir, "good"), filepath.Join(dir, path)}, -1, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	_, _, err := ReadRules(filepath.Join(dir, "missing"))
	if _, input := errors.AsType[*InputError](err); !input {
		t.Errorf("rules that are not there: %v", err)
	}
}

// TestJudgeKernel checks that the kernel's messages about a node's GPUs decide here as they do in
// the coordinator.
func TestJudgeKernel(t *testing.T) {
	const lost = `NVRM: Xid (PCI:0000:23:00): 79, pid=1122, GPU has fallen off the bus.`
	dir := write(t, map[string]string{
		"events.jsonl":                exited(0, 1, "01", `"code":1`, `,"kernel":"`+lost+`","tail":"RuntimeError: CUDA error: unknown error"`),
		"attempt-0/rank-1.stderr.log": "RuntimeError: CUDA error: unknown error\n",
	})
	all, err := Judge([]string{dir}, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if j := all[0]; j.Cause != "gpu-lost" || j.Action != report.ActionReplace || j.Quote != lost || j.Decided || j.File != "" {
		t.Errorf("%+v", j)
	}
}

// TestDecided has a record of a decision of the coordinator that does not follow from any log or
// any rule of golaunch's own.
func TestDecided(t *testing.T) {
	const result = `{"event":"result","detail":{"code":1,"cause":{"node":"n1","rank":1,"attempt":1,"exit":{"code":1},"at":"2026-05-04T03:02:05Z",` +
		`"lived_seconds":1.5,"gpu":0,"tail":"no seat\nbye","verdict":{"action":"stop","cause":"licence","title":"x","quote":"no seat",` +
		`"from":"tail","line":1,"victim":false,"remedy":"ask"}}}}` + "\n"
	dir := write(t, map[string]string{
		"events.jsonl":                exited(1, 0, "01", `"code":1`, `,"tail":"CUDA out of memory"`) + exited(1, 1, "05", `"code":1`, `,"tail":"no seat"`) + result,
		"attempt-1/rank-1.stderr.log": "a\nno seat\nbye\n", "attempt-1/rank-0.stderr.log": "CUDA out of memory\n",
	})
	all, err := Judge([]string{dir}, -1, nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	log := filepath.Join(dir, "attempt-1/rank-1.stderr.log")
	if j := all[0]; !j.Decided || j.Cause != "licence" || j.Action != report.ActionStop || j.Rank != 1 || j.File != log || j.Line != 2 || j.Words != "no seat\nbye" {
		t.Errorf("%+v", j)
	}
	if j := all[1]; j.Decided || j.Rank != 0 || j.Cause != "cuda-oom" {
		t.Errorf("also %+v", j)
	}
	if err := os.Rename(filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "events-n2.jsonl")); err != nil {
		t.Fatal(err)
	}
	if all, err = Judge([]string{dir}, -1, nil); err != nil || !all[0].Decided || all[0].Cause != "licence" {
		t.Errorf("by the record of a node that took over %+v, %v", all, err)
	}
	rules, err := verdict.Parse("rules", "wait full /CUDA out of memory/ ask")
	if err != nil {
		t.Fatal(err)
	}
	if all, err = Judge([]string{dir}, -1, rules); err != nil || all[0].Decided || all[0].Rank != 0 || all[0].Cause != "full" {
		t.Errorf("by other rules %+v, %v", all, err)
	}
}
