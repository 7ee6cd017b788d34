package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// patience bounds every wait for a process in these tests.
const patience = 5 * time.Minute

// process is a golaunch that runs on a node, or on this machine.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  output
	done chan error
}

// output keeps the output of a process and wakes the goroutines that wait for a line.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.more
}

// start runs a command. wait awaits its end; otherwise the end of the test kills it.
func start(t *testing.T, cmd *exec.Cmd, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan error, 1)}
	p.out.more = make(chan struct{})
	if cmd.Stderr = &p.out; cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	cmd.Env = append(append(cmd.Environ(), "TMPDIR="+t.TempDir()), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := p.out.read()
			t.Logf("%v\n%s", cmd.Args, text)
		}
		p.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
		select {
		case <-p.done:
		case <-time.After(patience):
			p.cmd.Process.Kill()
		}
	})
	return p
}

// wait returns the exit code and all output.
func (p *process) wait() (int, string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.cmd.Args)
	}
	p.done <- nil
	text, _ := p.out.read()
	return p.cmd.ProcessState.ExitCode(), text
}

// line waits until the output has a match, for as long as the command runs.
func (p *process) line(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	limit := time.After(patience)
	for ended := false; ; {
		text, more := p.out.read()
		switch {
		case re.MatchString(text):
			return
		case ended:
			p.t.Fatalf("%v ended before it printed %q", p.cmd.Args, pattern)
		}
		select {
		case <-more:
		case err := <-p.done:
			p.done <- err
			ended = true
		case <-limit:
			p.t.Fatalf("%v does not print %q", p.cmd.Args, pattern)
		}
	}
}

func golaunch(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("golaunch")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cluster is nodes whose addresses sort differently as text and as numbers, and a token file that
// they share.
func cluster(t *testing.T) (nodes []nettest.Node, token string) {
	t.Helper()
	return nettest.Nodes(t, "10.77.0.2", "10.77.0.10", "10.77.0.9"), tokenFile(t)
}

func tokenFile(t *testing.T) (token string) {
	t.Helper()
	token = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return token
}

// join is the command that every node of a job runs.
func join(t *testing.T, n nettest.Node, name, token string, args ...string) *exec.Cmd {
	return n.Command(append([]string{
		golaunch(t), "--rendezvous", "10.77.0.2:29400", "--name", name, "--token-file", token, "--backoff", "0s",
	}, args...)...)
}

// both runs a job on the first two nodes.
func both(t *testing.T, nodes []nettest.Node, token string, job ...string) (a, b *process) {
	t.Helper()
	return start(t, join(t, nodes[0], "a", token, job...)), start(t, join(t, nodes[1], "b", token, job...))
}

func TestTheSameCommandOnEveryNode(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{"--nodes", "3", "--procs-per-node", "2", "--", "sh", "-c", "echo node $NODE_RANK rank $RANK at $MASTER_ADDR"}
	first := start(t, join(t, nodes[0], "n2", token, job...))
	first.line("waiting for 2 of 3 nodes")
	others := []*process{
		start(t, join(t, nodes[1], "n10", token, job...)),
		start(t, join(t, nodes[2], "n9", token, job...)),
	}
	for i, p := range append([]*process{first}, others...) {
		code, text := p.wait()
		nodeRank := []int{0, 2, 1}[i]
		want := fmt.Sprintf("node %d rank %d at 10.77.0.2", nodeRank, 2*nodeRank+1)
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("exit code %d, want 0 and %q", code, want)
		}
	}
}

func TestNodesThatDoNotFit(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := func(extra ...string) []string {
		return append(extra, "--nodes", "2", "--procs-per-node", "1", "--grace", "1s", "--", "sh", "-c", "echo started; sleep 1000")
	}
	first := start(t, join(t, nodes[0], "a", token, job()...))
	first.line("waiting for 1 of 2 nodes")

	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(strings.Repeat("o", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, text := start(t, join(t, nodes[1], "b", other, job()...)).wait()
	if code != 125 || !strings.Contains(text, "token") {
		t.Errorf("a node with another token: exit code %d, want 125 and the token named:\n%s", code, text)
	}
	first.line("token")

	second := start(t, join(t, nodes[1], "b", token, job()...))
	second.line("started")
	first.line("attempt 0 runs") // a later state within 200 ms would hide the state of the spare
	spare := start(t, join(t, nodes[2], "c", token, job()...))
	first.line("c .*spare")
	first.signal(syscall.SIGINT)
	for _, p := range []*process{first, second, spare} {
		if code, _ := p.wait(); code != 130 {
			t.Errorf("%v after ^C: exit code %d, want 130", p.cmd.Args[3:], code)
		}
	}

	first = start(t, join(t, nodes[0], "a", token, job()...))
	first.line("waiting for 1 of 2 nodes")
	start(t, join(t, nodes[1], "b", token, job("--max-restarts", "5")...)).ends(125, "--max-restarts differs: 5 here, 3 on the coordinator")
	first.ends(2, "job failed: --max-restarts differs: 5 on b, 3 on the coordinator; start the same command on every node")

	first = start(t, join(t, nodes[0], "a", token, job()...))
	first.line("waiting for 1 of 2 nodes")
	start(t, join(t, nodes[1], "a", token, job()...)).ends(125, "there is a node a already, at 10.77.0.2; give each node its own --name")
	first.ends(2, "job failed: node a was refused, and without it 2 nodes cannot come together: there is a node a already")
}

func TestANodeIsKilledAndReplaced(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	marker := mark(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "2", "--env", marker, "--", "sh", "-c",
		"echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000",
	}
	first := start(t, join(t, nodes[0], "a", token, job...))
	second := start(t, join(t, nodes[1], "b", token, job...))
	second.line("attempt 0 rank 3")
	second.cmd.Process.Kill()
	first.line("b was lost")
	third := start(t, join(t, nodes[2], "c", token, job...))
	third.line("attempt 1 rank 3")
	for _, p := range []*process{first, third} {
		if code, _ := p.wait(); code != 0 {
			t.Errorf("%v: exit code %d, want 0", p.cmd.Args[3:], code)
		}
	}
	if left := marked(t, marker); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// TestNothingSurvives ends golaunch in every possible way. Each rank has a child in its session, a
// child in a separate session, and a child that was orphaned on purpose; all ignore SIGTERM.
func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	tree := `trap '' TERM; (trap '' TERM; sleep 1000) & setsid sh -c 'trap "" TERM; sleep 1000' & (setsid sh -c 'trap "" TERM; sleep 1000' &); echo up $RANK; wait; sleep 1000`
	for _, c := range []struct {
		name    string
		signals []syscall.Signal
		code    int
	}{
		{"one ^C", []syscall.Signal{syscall.SIGINT}, 130},
		{"two ^C", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130},
		{"SIGTERM", []syscall.Signal{syscall.SIGTERM}, 143},
		{"kill -9", []syscall.Signal{syscall.SIGKILL}, -1},
	} {
		for _, where := range [][]string{{"--procs-per-node", "2"}, {"--simulate", "--nodes", "2", "--procs-per-node", "1"}} {
			t.Run(c.name+" "+where[0], func(t *testing.T) {
				marker := fmt.Sprintf("GOLAUNCH_TEST_MARK=%d-%s", os.Getpid(), t.Name())
				args := append(slices.Clone(where), "--grace", "1s", "--env", marker, "--", "sh", "-c", tree)
				p := start(t, exec.Command(golaunch(t), args...))
				p.line("up 0")
				p.line("up 1")
				for i, s := range c.signals {
					if i > 0 {
						p.line("stop")
					}
					p.cmd.Process.Signal(s)
				}
				if code, _ := p.wait(); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				gone(t, marker)
			})
		}
	}
}

// TestStoppedAlone stops golaunch for longer than the lease, as ^Z does. On one machine the job goes
// on afterwards.
func TestStoppedAlone(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "--lease", "1s", "--procs-per-node", "1", "--", "sh", "-c", "echo pid $$; sleep 3"))
	p.line("pid [0-9]+")
	text, _ := p.out.read()
	_, after, _ := strings.Cut(text, "pid ") // a line about the wait may stand before it
	var pid int
	if _, err := fmt.Sscan(after, &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := pidfdOpen(pid)
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGSTOP)
	if !fd.ended(patience) {
		t.Error("the rank does not end")
	}
	p.signal(syscall.SIGCONT)
	if code, _ := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// gone checks that no process with the marker is left: at once if golaunch could clean up, and soon
// after kill -9.
func gone(t *testing.T, marker string) {
	t.Helper()
	for _, pid := range marked(t, marker) {
		fd, err := pidfdOpen(pid)
		if err != nil {
			continue
		}
		if !fd.ended(patience) {
			t.Errorf("process %d is left", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if left := marked(t, marker); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// marked lists the processes with a variable in their environment, except golaunch's own processes.
func marked(t *testing.T, variable string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var pid int
		fmt.Sscanf(file, "/proc/%d/environ", &pid)
		if slices.Contains(strings.Split(string(env), "\x00"), variable) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
