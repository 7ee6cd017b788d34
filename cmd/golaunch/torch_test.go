package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// python is the Python of Debian, which has python3-torch.
const python = "/usr/bin/python3"

// TestTorchDDP trains on two nodes of two ranks: once undisturbed, once forked by fork servers with
// a rank killed on the way, and for [suite.All] once under torchrun. All end with the same loss.
func TestTorchDDP(t *testing.T) {
	t.Parallel()
	needTorch(t, python)
	undisturbed := loss(t, trainNodes(t, "none"))
	disturbed := trainNodes(t, "torch", "--die-at", "25", "--die-rank", "3")
	if !regexp.MustCompile(`attempt 1: resumed at step 20`).MatchString(disturbed) {
		t.Errorf("the disturbed run did not resume from its checkpoint:\n%s", disturbed)
	}
	if got := loss(t, disturbed); got != undisturbed {
		t.Errorf("loss %s after a restart, %s without", got, undisturbed)
	}
	if !suite.All() {
		return
	}
	script, err := filepath.Abs("../../examples/torch-ddp/train.py")
	if err != nil {
		t.Fatal(err)
	}
	// 1.13.1 under Python 3.11 fails without -r and -t.
	torchrun := exec.Command(python, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--nproc_per_node", "4",
		"--master_port", "0", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0",
		script, "--steps", "60", "--checkpoint", filepath.Join(t.TempDir(), "ddp.pt"))
	torchrun.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // the logs are there
	out, err := torchrun.CombinedOutput()
	if err != nil {
		t.Fatalf("torchrun: %v\n%s", err, out)
	}
	if got := loss(t, string(out)); got != undisturbed {
		t.Errorf("loss %s under torchrun, %s under golaunch", got, undisturbed)
	}
}

// trainNodes runs the example on two nodes and returns the output of both.
func trainNodes(t *testing.T, preload string, args ...string) string {
	t.Helper()
	script, err := filepath.Abs("../../examples/torch-ddp/train.py")
	if err != nil {
		t.Fatal(err)
	}
	var text string
	t.Run(fmt.Sprint("nodes ", preload, args), func(t *testing.T) {
		nodes, token := cluster(t)
		job := append([]string{
			"--preload", preload, "--nodes", "2", "--procs-per-node", "2", "--", python, script, "--steps", "60",
			"--checkpoint", filepath.Join(t.TempDir(), "ddp.pt"),
		}, args...)
		first := start(t, join(t, nodes[0], "a", token, job...), "GLOO_SOCKET_IFNAME=eth0")
		second := start(t, join(t, nodes[1], "b", token, job...), "GLOO_SOCKET_IFNAME=eth0")
		for _, p := range []*process{first, second} {
			code, out := p.wait()
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			text += out
		}
	})
	return text
}

func loss(t *testing.T, text string) string {
	t.Helper()
	m := regexp.MustCompile(`final loss (\S+) after 60 steps`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no final loss:\n%s", text)
	}
	return m[1]
}

// needTorch skips a test if there is no torch.
func needTorch(t *testing.T, python string) {
	t.Helper()
	const find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)" // an import would take seconds
	if out, err := exec.Command(python, "-c", find).CombinedOutput(); err != nil {
		suite.Missing(t, "%s has no torch (Debian: apt-get install python3-torch): %v\n%s", python, err, out)
	}
}
