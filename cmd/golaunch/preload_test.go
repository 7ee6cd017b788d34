package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowModule notes each process that imports it in the file of IMPORTS. It asks for its process id
// and writes the file in ways that do not prevent a fork.
const slowModule = `import os
pid = int(os.readlink("/proc/self"))
with open(os.environ["IMPORTS"], "a") as f:
    f.write("%d\n" % pid)
`

// withModule writes the module slow. It returns the environment in which ranks find the module, and
// the file in which the module notes the processes that import it.
func withModule(t *testing.T) (env []string, imports string) {
	t.Helper()
	dir := t.TempDir()
	imports = filepath.Join(dir, "imports")
	for file, text := range map[string]string{filepath.Join(dir, "slow.py"): slowModule, imports: ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"PYTHONPATH=" + dir, "PYTHONDONTWRITEBYTECODE=1", "IMPORTS=" + imports}, imports
}

func importsOf(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// An agent keeps the fork server of a job for the next job, and nothing of the server outlives the
// agent.
func TestAForkServerIsKeptBetweenJobs(t *testing.T) {
	t.Parallel()
	t.Run("by the agent", func(t *testing.T) {
		keepsForkServer(t, syscall.SIGKILL)
	})
	t.Run("by the keeper", func(t *testing.T) {
		keepsForkServer(t, syscall.SIGTERM, "--adopt", "--log-dir", t.TempDir())
	})
}

func keepsForkServer(t *testing.T, end syscall.Signal, args ...string) {
	h := newCluster(t)
	h.coordinate()
	env, imports := withModule(t)
	marker := mark(t)
	agent := h.join(1, "n10", 0, append([]string{"--preload", "slow"}, args...)...)
	run := func(args ...string) string {
		var job []string
		for _, e := range append(env, marker) {
			job = append(job, "--env", e)
		}
		return h.do(append(append(append([]string{"run"}, job...), args...), "--procs-per-node", "2", "--", python, "-c",
			"import os, slow; print('imported by', 'itself' if slow.pid == os.getpid() else 'another')")...)
	}
	for range 3 {
		if text := run(); strings.Count(text, "imported by another") != 2 {
			t.Errorf("the ranks were not forked:\n%s", text)
		}
	}
	if n := importsOf(t, imports); n != 1 {
		t.Errorf("%d imports of three jobs, want 1", n)
	}
	if text := run("--preload", "none"); strings.Count(text, "imported by itself") != 2 {
		t.Errorf("ranks were forked that were not to be:\n%s", text)
	}
	if len(marked(t, marker)) == 0 {
		t.Error("no fork server waits for the next job")
	}
	kill(t, agent.cmd.Process.Pid, end)
	agent.wait()
	gone(t, marker)
}

// Modules that prevent a fork are imported for one job, and not for later jobs until the modules
// change.
func TestARefusalToForkIsKeptBetweenJobs(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate()
	env, imports := withModule(t)
	module := filepath.Join(filepath.Dir(imports), "slow.py")
	write := func(text string) {
		if err := os.WriteFile(module, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.join(1, "n10", 0)
	run := func(want string, args ...string) {
		t.Helper()
		job := append([]string{"run", "--preload", "slow", "--env", env[0], "--env", env[1], "--env", env[2]}, args...)
		text := h.do(append(job, "--", python, "-c", "import os, sys; print('forked:', 'slow' in sys.modules)")...)
		if !strings.Contains(text, want) {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
	write(slowModule + "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n")
	for range 3 {
		run("forked: False")
	}
	if n := importsOf(t, imports); n != 1 {
		t.Errorf("%d imports for three jobs, want 1", n)
	}
	write(slowModule)
	run("forked: True")
}

// A later agent adopts forks of the earlier agent's server, and starts its own server for the next
// attempt.
func TestForksOutliveTheirAgent(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate()
	env, imports := withModule(t)
	marker, logs, end := mark(t), t.TempDir(), filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--adopt", "--log-dir", logs}
	agent := h.join(1, "n10", 0, args...)
	job := []string{"run", "--preload", "slow", "--backoff", "0s", "--procs-per-node", "2", "--env", marker}
	for _, e := range env {
		job = append(job, "--env", e)
	}
	p := h.start(0, append(job, "--", python, "-c", `import os, slow, sys
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
print("attempt", attempt, "rank", rank, "imported by", "itself" if slow.pid == os.getpid() else "another", flush=True)
if attempt == "0":
    open(sys.argv[1]).read()
    sys.exit(3)
`, end)...)
	p.line("attempt 0 rank 0 imported by another")
	p.line("attempt 0 rank 1 imported by another")
	kill(t, agent.cmd.Process.Pid, syscall.SIGKILL)
	agent.wait()
	h.join(1, "n10", 0, args...)
	if err := os.WriteFile(end, nil, 0); err != nil {
		t.Fatal(err)
	}
	code, text := p.wait()
	if code != 0 || strings.Count(text, "attempt 1 rank") != 2 || strings.Contains(text, "itself") || importsOf(t, imports) != 2 {
		t.Errorf("exit code %d, %d imports:\n%s", code, importsOf(t, imports), text)
	}
}

// Hundreds of attempts leave no process and no file behind, and import once.
func TestForksOfManyAttempts(t *testing.T) {
	t.Parallel()
	env, imports := withModule(t)
	marker, attempts := mark(t), 200
	program := fmt.Sprintf("import os, slow, sys\na = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"+
		"print(a, len(os.listdir('/proc/%%d/fd' %% os.getppid())), flush=True)\nsys.exit(0 if a == %d else 100 + a %% 7)", attempts)
	cmd := exec.Command(golaunch(t), "--preload", "slow", "--backoff", "0s", "--max-restarts", fmt.Sprint(attempts), "--bundle", "off",
		"--env", marker, "--", python, "-c", program)
	p := start(t, cmd, env...)
	code, text := p.wait()
	var first, last, n int
	for line := range strings.Lines(text) {
		var attempt, open int
		if _, err := fmt.Sscanf(line, "%d %d", &attempt, &open); err == nil {
			if n++; attempt == 1 {
				first = open
			}
			last = open
		}
	}
	if code != 0 || n != attempts+1 || last > first+attempts/10 || // some descriptors are open only for a moment, such as files of /proc
		importsOf(t, imports) != 1 {
		t.Errorf("exit code %d after %d attempts, %d files open at first, %d in the end, %d imports", code, n, first, last, importsOf(t, imports))
	}
	gone(t, marker)
}

// The ranks of the next attempt are forked while the ranks of this attempt run, and leave nothing
// behind.
func TestForksAhead(t *testing.T) {
	env, _ := withModule(t)
	marker := mark(t)
	begin := func(t *testing.T, args ...string) (p *process, ahead []int) {
		args = append(append([]string{"--preload", "slow", "--backoff", "0s", "--procs-per-node", "2", "--env", marker}, args...), "--", python, "-c", `import os, slow, time
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "rank", os.environ["RANK"], "is", os.getpid(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(1000)
`)
		p = start(t, exec.Command(golaunch(t), args...), env...)
		p.line("attempt 0 rank 0 is")
		p.line("attempt 0 rank 1 is")
		for limit := time.Now().Add(patience); len(ahead) < 3; runtime.Gosched() { // the forks and their server
			if time.Now().After(limit) {
				t.Fatalf("no ranks are forked ahead: there are %v", ahead)
			}
			ahead = slices.DeleteFunc(marked(t, marker), func(pid int) bool {
				env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
				return err != nil || strings.Contains(string(env), "\x00RANK=")
			})
		}
		return p, ahead
	}
	t.Run("of a restart", func(t *testing.T) {
		p, ahead := begin(t)
		kill(t, p.pid(`rank 0 is (\d+)`), syscall.SIGKILL)
		for rank := range 2 {
			if pid := p.pid(fmt.Sprintf(`attempt 1 rank %d is (\d+)`, rank)); !slices.Contains(ahead, pid) {
				t.Errorf("rank %d is process %d, and %v waited", rank, pid, ahead)
			}
		}
		p.ends(0)
		gone(t, marker)
	})
	t.Run("of no restart", func(t *testing.T) {
		p, _ := begin(t)
		p.signal(syscall.SIGTERM)
		p.wait()
		gone(t, marker)
	})
	t.Run("of golaunch that is killed", func(t *testing.T) {
		p, _ := begin(t)
		kill(t, p.cmd.Process.Pid, syscall.SIGKILL)
		gone(t, marker)
	})
}

// Nothing outlives golaunch, no matter how it dies.
func TestForksDieWithGolaunch(t *testing.T) {
	t.Parallel()
	env, _ := withModule(t)
	marker := mark(t)
	cmd := exec.Command(golaunch(t), "--preload", "slow", "--procs-per-node", "3", "--env", marker, "--", python, "-c",
		"import os, slow, time\nif os.fork() == 0:\n    os.setsid()\nos.write(1, b'up\\n')\ntime.sleep(1000)")
	p := start(t, cmd, env...)
	for rank := range 3 {
		p.line(fmt.Sprintf(`r%d .*\] up\n(.*\n)*.*r%[1]d .*\] up`, rank))
	}
	kill(t, p.cmd.Process.Pid, syscall.SIGKILL)
	gone(t, marker)
}
