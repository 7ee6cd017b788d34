package verdict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
)

// python is a Python that has torch if the distribution's package is installed (python3-torch).
const python = "/usr/bin/python3"

// fail runs a program that is to fail, and returns its exit and output.
func fail(t *testing.T, command string, args ...string) report.Failure {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Stderr = &stderr
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("%s %v: %v\n%s", command, args, err, stderr.String())
	}
	e := report.Failure{Exit: report.Exit{Code: exit.ExitCode()}, Tail: stderr.String()}
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		e.Exit = report.Exit{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return e
}

func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "t.py")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRealFailures judges the exits and outputs of real programs.
func TestRealFailures(t *testing.T) {
	for _, c := range []struct {
		cause, quote string
		args         []string
	}{
		{"segfault", "", []string{"sh", "-c", "kill -SEGV $$"}},
		{"killed", "", []string{"sh", "-c", "kill -KILL $$"}},
		{"segfault", "", []string{"sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"}},
		{"file-not-found", "No such file or directory", []string{"cat", "not-here"}},
		{"segfault", "Fatal Python error: Segmentation fault", []string{python, "-X", "faulthandler", "-c", "import os; os.kill(os.getpid(), 11)"}},
		{"import-error", "ModuleNotFoundError: No module named 'not_here'", []string{python, "-c", "import not_here"}},
		{"syntax-error", "SyntaxError: '(' was never closed", []string{python, "-c", "x = ("}},
		{"usage", "-c: error: unrecognized arguments: --x", []string{python, "-c", "import argparse; argparse.ArgumentParser().parse_args(['--x'])"}},
		{"python-error", "KeyError: 'x'", []string{python, "-c", "{}['x']"}},
		{"python-error", "ZeroDivisionError: division by zero", []string{python, "-c", "try: open('x')\nexcept OSError: 1/0"}},
		{"assertion", "AssertionError: no", []string{python, "-c", "assert 0, 'no'"}},
		{"disk-full", "OSError: [Errno 28] No space left on device", []string{python, "-c", "with open('/dev/full', 'w') as f: f.write('x')"}},
		{"limits", "OSError: [Errno 24] Too many open files: '/'", []string{python, "-c", "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\nwhile 1: os.open('/', 0)"}},
		{"host-oom", "MemoryError", []string{python, "-c", "bytearray(1 << 60)"}},
		{"address-in-use", "OSError: [Errno 98] Address already in use", []string{python, "-c", "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\nsocket.socket().bind(s.getsockname())"}},
	} {
		v := Judge(fail(t, c.args[0], c.args[1:]...))
		if v.Cause != c.cause || !strings.Contains(v.Quote, c.quote) {
			t.Errorf("%v: %+v, want %s with %q", c.args, v, c.cause, c.quote)
		}
	}
}

const loader = `
import os, signal
from torch.utils.data import DataLoader
class Data(list):
    def __getitem__(self, i):
        %s
for x in DataLoader(Data([1, 2]), num_workers=1): pass
`

// TestRealTorch is TestRealFailures with torch. Without torch, or without its CPU build, there is
// nothing to test.
func TestRealTorch(t *testing.T) {
	if err := exec.Command(python, "-c", "import torch; exit(torch.version.cuda is not None)").Run(); err != nil {
		suite.Missing(t, "torch on CPUs is not installed: %v", err)
	}
	for _, c := range []struct{ cause, quote, text string }{
		{"gpu-unsupported", "Torch not compiled with CUDA enabled", "import torch; torch.ones(1).cuda()"},
		{"checkpoint-corrupt", "PytorchStreamReader failed reading zip archive", "import torch; open('x', 'wb').write(b'PK\\3\\4junkjunk'); torch.load('x')"},
		{"checkpoint-mismatch", "Error(s) in loading state_dict for Linear", "import torch.nn as n; n.Linear(2, 2).load_state_dict(n.Linear(3, 3).state_dict())"},
		{"host-oom", "DefaultCPUAllocator: can't allocate memory", "import torch; torch.empty(1 << 45)"},
		{"nan-loss", "returned nan values in its 0th output", "import torch\nx = torch.tensor([-1.], requires_grad=True)\nwith torch.autograd.detect_anomaly(): torch.sqrt(x).sum().backward()"},
		{"dataloader-worker-killed", "DataLoader worker (pid", fmt.Sprintf(loader, "os.kill(os.getpid(), signal.SIGKILL)")},
		{"bus-error", "is killed by signal: Bus error", fmt.Sprintf(loader, "os.kill(os.getpid(), signal.SIGBUS)")},
		{"python-error", "KeyError: 'sample'", fmt.Sprintf(loader, "raise KeyError('sample')")},
	} {
		e := fail(t, python, script(t, c.text))
		if v := Judge(e); v.Cause != c.cause || !strings.Contains(v.Quote, c.quote) {
			t.Errorf("%s: %+v, want %s with %q\n%s", c.text, v, c.cause, c.quote, e.Tail)
		}
	}
}

const pair = `
import datetime, os, sys, torch, torch.distributed as d
d.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=int(sys.argv[2]), world_size=2, timeout=datetime.timedelta(seconds=60))
d.all_reduce(torch.ones(1))
if d.get_rank() == 1: {}['batch']
d.all_reduce(torch.ones(1))
`

// TestRealEcho checks that if one of two ranks fails, the other is a victim.
func TestRealEcho(t *testing.T) {
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		suite.Missing(t, "torch is not installed: %v", err)
	}
	file, store := script(t, pair), filepath.Join(t.TempDir(), "store")
	var left [2]report.Failure
	var ranks sync.WaitGroup
	for rank := range left {
		ranks.Go(func() {
			left[rank] = fail(t, "env", "GLOO_SOCKET_IFNAME=lo", python, file, store, strconv.Itoa(rank))
		})
	}
	ranks.Wait()
	echo, root := Judge(left[0]), Judge(left[1])
	if !echo.Victim || echo.Cause != "gloo-peer-lost" || root.Victim || root.Cause != "python-error" || root.Quote != "KeyError: 'batch'" {
		t.Errorf("%+v\n%+v\n%s", echo, root, cmp.Or(left[0].Tail, "nothing"))
	}
}
