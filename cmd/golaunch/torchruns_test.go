package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// testPython names a variable with the Python whose torch runs the cases of torch, such as the
// Python of a virtual environment with PyPI's newest torch. Without the variable, the torch of
// testRoot runs them, or Debian's.
const testPython = "GOLAUNCH_TEST_PYTHON"

// testRoot names a variable with the root of a Debian that has a newer python3-torch than the
// machine:
//
//	mmdebstrap --variant=essential --include=python3-torch sid ROOT
const testRoot = "GOLAUNCH_TEST_TORCH"

// inRoot returns the Python of another root, which has the temporary files, working directory,
// processes and hosts of this root. A name that is not among its hosts is unknown at once: there
// are no name servers.
const inRoot = `#!/bin/sh
exec unshare --mount sh -c '
	root=$1 tmp=$2
	shift 2
	mkdir -p "$root$tmp" && mount --rbind "$tmp" "$root$tmp" && mkdir -p "$root$PWD" && mount --rbind "$PWD" "$root$PWD" && mount -t proc proc "$root/proc" &&
		touch "$root/etc/hosts" && mount --bind /etc/hosts "$root/etc/hosts" && mount --bind /dev/null "$root/etc/resolv.conf" &&
		exec chroot "$root" env --chdir="$PWD" /usr/bin/python3 "$@"
' sh '%s' '%s' "$@"
`

// oldestTorch is the first version whose torchrun has all flags that the cases use.
const oldestTorch = "2.14"

// A torch is a Python that has torch, with a process of this Python that runs torchrun on each
// request.
type torch struct {
	python, version string
	env             []string // the variables that this torch needs
	stdin           io.WriteCloser
	ready           chan error

	mu   sync.Mutex
	last int
	ends map[int]chan<- int
}

// An order starts a torchrun, or sends a signal to a torchrun.
type order struct {
	ID     int               `json:"id"`
	Module string            `json:"module,omitempty"`
	Dir    string            `json:"dir,omitempty"`
	Out    string            `json:"out,omitempty"`
	Err    string            `json:"err,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Args   []string          `json:"args,omitempty"`
	Signal syscall.Signal    `json:"signal,omitempty"`
}

// startTorch finds the newest torch on this machine, and starts it if torchrun itself must run; it
// is ready some seconds later.
func startTorch(t *testing.T) *torch {
	t.Helper()
	o := &torch{python: os.Getenv(testPython), ready: make(chan error, 1), ends: map[int]chan<- int{}}
	if o.python == "" {
		o.python = python
		if root := os.Getenv(testRoot); root != "" {
			o.python = filepath.Join(t.TempDir(), "python3")
			if err := os.WriteFile(o.python, fmt.Appendf(nil, inRoot, root, os.TempDir()), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	version, err := exec.Command(o.python, "-c", `import importlib.metadata as m; print(m.version("torch"))`).Output()
	if err != nil {
		suite.Missing(t, "%s has no torch (Debian: apt-get install python3-torch): %v", o.python, err)
	}
	o.version = strings.TrimSpace(string(version))
	if o.debian() {
		o.env = append(o.env, "USE_LIBUV=0") // it is built without libuv
	}
	if !*recordTorch && !suite.All() {
		return o
	}
	if before(o.version, oldestTorch) {
		tell := t.Logf
		if os.Getenv("CI") != "" {
			tell = t.Errorf
		}
		tell("torch %s is older than %s: torchrun itself is not run; let %s name a newer torch's Python", o.version, oldestTorch, testPython)
		return o
	}
	cmd := exec.Command(o.python, filepath.Join(torchPrograms, "torchruns.py"))
	cmd.Stderr = os.Stderr
	var out io.Reader
	o.stdin, out = pipetest.Start(t, cmd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.read(out)
	}()
	t.Cleanup(func() {
		o.stdin.Close()
		select {
		case <-done:
		case <-time.After(patience):
			cmd.Process.Kill()
		}
		cmd.Wait()
	})
	return o
}

// debian reports whether this torch is Debian's build.
func (o *torch) debian() bool {
	return strings.HasSuffix(o.version, "debian") || o.python == python
}

// before compares two versions by their first two numbers.
func before(a, b string) bool {
	var x, y [2]int
	fmt.Sscanf(a, "%d.%d", &x[0], &x[1])
	fmt.Sscanf(b, "%d.%d", &y[0], &y[1])
	return x[0] < y[0] || x[0] == y[0] && x[1] < y[1]
}

// runs reports whether torchrun itself runs.
func (o *torch) runs() bool { return o.stdin != nil }

// read passes the ends of torchruns to the goroutines that wait for them.
func (o *torch) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	if !lines.Scan() {
		o.ready <- fmt.Errorf("%s: torchruns.py ends at once", o.python)
		return
	}
	o.ready <- nil
	for lines.Scan() {
		var end struct{ ID, Code int }
		if err := json.Unmarshal(lines.Bytes(), &end); err != nil {
			continue // the line is not the end of a torchrun
		}
		o.mu.Lock()
		o.ends[end.ID] <- end.Code
		o.mu.Unlock()
	}
}

// run starts a torchrun and returns its number. The channel gets its exit code.
func (o *torch) run(w order, end chan<- int) (int, error) {
	err := <-o.ready
	o.ready <- err
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	w.ID = o.last
	o.ends[w.ID] = end
	return w.ID, json.NewEncoder(o.stdin).Encode(w)
}

func (o *torch) signal(id int, sig syscall.Signal) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return json.NewEncoder(o.stdin).Encode(order{ID: id, Signal: sig})
}
