package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestAtRest counts by system calls how often golaunch opens or examines files of a job that writes
// no checkpoint. The calls of the first 20 seconds are still about an earlier checkpoint.
func TestAtRest(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		suite.Missing(t, "%v", err)
	}
	const ranks, seconds, settled = 2, 45, 20
	dir, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command(golaunch(t), "--procs-per-node", strconv.Itoa(ranks), "--grace", "1s", "--checkpoint-dir", "ckpt", "--", "sh", "-c",
		"mkdir -p ckpt && head -c 4000000 /dev/zero >ckpt/model-$RANK.pt && echo saved && exec sleep 1000")
	cmd.Dir = dir
	p := start(t, cmd)
	p.line(`\[r0 .*\] saved`)
	p.line(`\[r1 .*\] saved`)
	// timeout(1) ends the trace and so determines how long the test counts.
	trace := exec.Command("timeout", "-s", "INT", strconv.Itoa(seconds), strace, "-f", "-y", "-qq", "-ttt", "-e", "trace=%file,getdents64", "-o", calls,
		"-p", strconv.Itoa(cmd.Process.Pid))
	if out, err := trace.CombinedOutput(); trace.ProcessState.ExitCode() != 124 {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var began float64
	var early, late []string
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line) // PID TIME CALL
		if len(words) < 3 {
			continue
		}
		at, err := strconv.ParseFloat(string(words[1]), 64)
		if err != nil {
			continue
		}
		if began == 0 {
			began = at
		}
		line = bytes.ReplaceAll(line, []byte("AT_FDCWD<"+dir+">"), nil) // strace prints the working directory, which is dir, for any call
		switch own := bytes.Contains(line, []byte(dir)); {
		case own && at-began < settled:
			early = append(early, string(line))
		case own:
			late = append(late, string(line))
		}
	}
	if len(early) == 0 {
		t.Errorf("golaunch has not looked at the checkpoint at all:\n%s", text)
	}
	if most := ranks * (1 + (seconds-settled)/10); len(late) > most {
		t.Errorf("%d calls about the job's files at rest, more than one per rank in 10 s (%d):\n%s", len(late), most, late)
	}
}
