package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestHyperPod has two ranks with the client of HyperPod's elastic agent. They restart within their
// processes, then one rank asks for new processes, and then one rank does not come back. All
// processes are forked: torch is imported once.
func TestHyperPod(t *testing.T) {
	t.Parallel()
	python := suite.Optional(t, "GOLAUNCH_TEST_HYPERPOD", "Python with hyperpod-elastic-agent")
	script, err := filepath.Abs("testdata/hyperpod/rank.py")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(golaunch(t), "--procs-per-node", "2", "--inprocess-restart", "5s", "--grace", "1s", "--backoff", "0s:0s",
		"--preload", "torch", "--env", "LOGLEVEL=ERROR", "--", python, script))
	p.line(`rank 1: run 0, last run: \[\]`)
	p.line(`rank 1 has failed, and all ranks restart within their processes: the loss is not a number`)
	p.line(`rank 0: run 1, last run: \[\(1, True, 'step 7'\)\]`)
	p.line(`rank 1 asks for a restart of its process: the optimizer is gone`)
	p.line(`rank 0: the newest checkpoint is /c/6`)
	p.line(`hang: 1 rank has not moved for \S+; behind is rank 1 \(.*\): it is on its way back to the barrier, which may take 5s`)
	p.line(`rank 0 sums up: 3`)
	p.ends(0, "restart-asked")
}
