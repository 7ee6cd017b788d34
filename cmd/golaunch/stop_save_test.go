package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestStopSave stops stand-ins for training programs, which save in different ways, and checks that
// golaunch is right about their saved files. A wrapped program runs below a shell.
func TestStopSave(t *testing.T) {
	t.Parallel()
	for way, c := range map[string]struct {
		saves, always, wrapped bool
		ranks, nodes           int
		format                 string
		// files is the number of files of the checkpoint; 0 for a checkpoint that is a single file.
		files int
	}{
		"boundary":      {saves: true, always: true, format: "file"},
		"warm_up":       {},
		"evaluation":    {saves: true, format: "file"},
		"thread":        {saves: true, format: "file"},
		"process":       {saves: true, always: true, format: "file"},
		"rename":        {saves: true, format: "nemo-rl", files: 3},
		"no_mark":       {saves: true, format: "other", files: 1},
		"early_latest":  {saves: true, always: true, ranks: 2, format: "deepspeed", files: 3},
		"workers":       {saves: true, format: "file"},
		"plain_workers": {saves: true, format: "file"},
		"shell":         {saves: true, wrapped: true, format: "file"},
		"ignores":       {always: true},
		"other_node":    {saves: true, nodes: 2, format: "file"},
		"tensors":       {saves: true, format: "trainer", files: 4},
	} {
		if !c.always && !suite.All() {
			continue
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			program, err := filepath.Abs("testdata/trainers/trainer.py")
			if err != nil {
				t.Fatal(err)
			}
			dir, within, command := t.TempDir(), "1h", []string{"/usr/bin/python3", program, way}
			if c.wrapped {
				command = []string{"sh", "-c", "/usr/bin/python3 " + program + " boundary; true"}
			}
			if !c.saves {
				within = "3s"
			}
			id := "stopsave-" + way
			args := []string{"--job-id", id, "--grace", "1s", "--checkpoint-dir", filepath.Join(dir, "ck"), "--procs-per-node", strconv.Itoa(max(1, c.ranks))}
			if c.nodes > 0 {
				args = append(args, "--simulate", "--nodes", strconv.Itoa(c.nodes))
			}
			job := exec.Command(golaunch(t), slices.Concat(args, []string{"--"}, command)...)
			job.Dir = dir
			temp := "TMPDIR=" + t.TempDir() // local jobs are found there
			p := start(t, job, temp)
			for range max(1, c.ranks, c.nodes) {
				p.line("ready$")
			}
			stop := exec.Command(golaunch(t), "stop", id, "--save", "--within", within, "--json")
			stop.Env, stop.Stderr = append(stop.Environ(), temp, "GOLAUNCH_COORDINATOR="), &p.out
			out, err := stop.Output()
			var shown stoppedShown
			if decodeErr := json.Unmarshal(out, &shown); decodeErr != nil {
				t.Fatalf("stop prints %q: %v, %v", out, decodeErr, err)
			}
			p.ends(143, "stopped by golaunch stop --save")
			if len(shown.Saves) != 1 || shown.Saves[0].Job != id {
				t.Fatalf("stop prints the saves of other jobs: %s", out)
			}
			saves := shown.Saves[0].Saves
			code := map[bool]int{true: 0, false: codeNotSaved}[c.saves]
			if saves == nil || saves.AfterNotice != c.saves || stop.ProcessState.ExitCode() != code {
				t.Fatalf("stop exits with %d, want %d: %s", stop.ProcessState.ExitCode(), code, out)
			}
			if c.saves {
				checkSave(t, dir, program, *saves.Last, c.format, c.files)
			}
		})
	}
}

// checkSave lets the program itself check a checkpoint.
func checkSave(t *testing.T, dir, program string, s report.Save, format string, files int) {
	t.Helper()
	if filepath.Dir(s.Path) != filepath.Join(dir, "ck") || s.Format != format || s.Bytes < 10_000 || s.Ended.Before(s.Began) {
		t.Errorf("it says %+v", s)
	}
	if found, err := filepath.Glob(filepath.Join(s.Path, "*")); err != nil || len(found) != files {
		t.Errorf("%s has %v: %v", s.Path, found, err)
	}
	if out, err := exec.Command("/usr/bin/python3", program, "check", s.Path).CombinedOutput(); err != nil {
		t.Errorf("%s is not complete: %v\n%s", s.Path, err, out)
	}
}
