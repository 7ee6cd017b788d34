package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// nvrxPython returns a Python with the imports of NVIDIA's resiliency extension, and the directory
// of the extension's newest version.
func nvrxPython(t *testing.T) (python, version string) {
	t.Helper()
	python = suite.Optional(t, "GOLAUNCH_TEST_NVRX", "Python with nvidia-resiliency-ext")
	return python, filepath.Join(filepath.Dir(filepath.Dir(python)), "versions", "0.7.0")
}

// TestRankMonitor makes a rank hang in a section whose limit it has learned. The next attempt knows
// that limit, and asks for the end of the job. The ranks of both attempts are forked: torch is
// imported once.
func TestRankMonitor(t *testing.T) {
	t.Parallel()
	python, version := nvrxPython(t)
	script, err := filepath.Abs("testdata/nvrx/rank.py")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(golaunch(t), "--procs-per-node", "1", "--rank-monitor", "setup:3600,checkpointing:3600", "--grace", "1s",
		"--preload", "nvidia_resiliency_ext.fault_tolerance", "--env", "PYTHONPATH="+version, "--", python, script))
	p.line(`limit 3600\.0`)
	learned := p.match(`learned (\S+)`)[1]
	p.line(`hang: 1 rank has not moved for \S+; behind is rank 0 \(.*\): it is in section checkpointing, which may take `)
	p.line(`limit ` + learned)
	p.ends(3, "a restart would not help (end-asked)", "rank 0 asks for the end of the job: the data is gone")
}
