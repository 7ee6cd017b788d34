package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestAClientIsKilled: the client's job ends too, unless it is detached. A pipe without a reader
// ends no job.
func TestAClientIsKilled(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 2)
	marker := mark(t)
	h.detach("detached", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", hung)
	attached := h.start(1, "--coordinator", h.at, "--job-id", "attached", "--nodes", "2", "--gpus-per-node", "1", "--grace", "1s",
		"--env", marker, "--", "sh", "-c", stubborn)
	attached.line("up 1")
	follow := h.start(0, "logs", "-f", "attached")
	follow.line("up 0")
	attached.kill()
	follow.ends(0)
	if left := marked(t, marker); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	j := h.status().job(t, "attached")
	if j.Result == nil || j.Result.Code != 129 || !strings.Contains(j.Result.Reason, "the client that submitted it is gone") {
		t.Errorf("its job: %+v", j)
	}
	if j := h.status().job(t, "detached"); j.Phase != "running" {
		t.Errorf("a detached one: %+v", j)
	}

	unread, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	unread.Close()
	broken := h.nodes[0].Command(golaunch(t), "--detach", "--job-id", "unread", "--procs-per-node", "1", "--", "sh", "-c", hung)
	broken.Env = append(os.Environ(), "HOME="+h.home, "GOLAUNCH_COORDINATOR=")
	broken.Stdout = pipe
	err = broken.Run()
	pipe.Close()
	if code := broken.ProcessState.ExitCode(); code != 125 {
		t.Errorf("--detach into a broken pipe: exit code %d (%v), want 125", code, err)
	}
	h.start(0, "logs", "-f", "unread").line("up 0")
}

// TestAClientIsCutOff: a client is cut off for longer than the lease, so its job ends. The client
// learns this when it returns.
func TestAClientIsCutOff(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	coordinator := h.coordinate("--lease", "1s")
	h.join(2, "n9", 1)
	marker := mark(t)
	client := h.start(1, "--coordinator", h.at, "--env", marker, "--", "sh", "-c", hung)
	client.line("up 0")
	h.nodes[1].Cut(t)
	coordinator.line("is over: job cancelled: the client that submitted it is gone")
	gone(t, marker)
	h.nodes[1].Join(t)
	client.ends(129, "the client that submitted it is gone")
}

// TestAnAgentIsKilled: the job of a killed agent restarts on the existing nodes, or waits for a
// node if there are too few.
func TestAnAgentIsKilled(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, n9 := up(t, 1)
	marker := mark(t)
	job := h.start(0, "--nodes", "2", "--gpus-per-node", "1", "--backoff", "0s", "--env", marker, "--", "sh", "-c",
		"echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK on $GOLAUNCH_NODE; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || sleep 1000")
	job.line("attempt 0 rank 0 on n9")
	job.line("attempt 0 rank 1 on n10")
	n10.signal(syscall.SIGKILL)
	job.line("n10 was lost")
	job.line("1 of 2 nodes")
	h.join(0, "n2", 1)
	job.line("attempt 1 rank 0 on n9")
	job.line("attempt 1 rank 1 on n2")
	h.join(1, "n10", 1)
	n9.signal(syscall.SIGTERM)
	n9.ends(143)
	coordinator.line("n9 .*got SIGTERM")
	job.ends(0, "attempt 2 rank 0 on n10", "attempt 2 rank 1 on n2")
	gone(t, marker)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	h, _, n10, n9 := up(t, 2)
	h.detach("a", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", "echo up $RANK; while [ ! -e end ]; do sleep 0.02; done")
	drain := h.start(0, "agent", "--drain", "--name", "n9")
	drain.line("n9 gets no more ranks, and leaves after job a")
	if n := h.status().node(t, "n9"); n.State != report.NodeDrained || n.Used != 1 {
		t.Errorf("drained: %+v", n)
	}
	h.start(0, "--nodes", "2", "--gpus-per-node", "1", "--placement-timeout", "300ms", "--", "true").ends(124, "1 of 2 nodes")
	h.do("--gpus-per-node", "1", "--", "sh", "-c", "[ $GOLAUNCH_NODE = n10 ]")
	h.touch("end")
	drain.ends(0)
	n9.ends(0, "drained")
	var left struct {
		Node string
		Jobs []string
	}
	out := h.do("agent", "--drain", "--no-wait", "--name", "n10", "--json")
	if err := json.Unmarshal([]byte(out), &left); err != nil || left.Node != "n10" || left.Jobs == nil || len(left.Jobs) > 0 {
		t.Errorf("agent --drain --json prints %s (%v)", out, err)
	}
	n10.ends(0)
	if s := h.status(); len(s.Nodes) != 0 || s.job(t, "a").Result.Code != 0 {
		t.Errorf("after all have left: %+v", s)
	}
	h.start(0, "agent", "--drain", "--name", "n9").ends(2, `there is no node "n9" here`)
}

// TestSubmitToken: the holder of a submit token can run and watch jobs, and do nothing else.
func TestSubmitToken(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 1)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(h.do("submit-token")), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := h.do("--token-file", file, "--gpus-per-node", "1", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"); !strings.Contains(text, "rank 0 of 1\n") {
		t.Error(text)
	}
	if text := h.do("status", "--token-file", file); !strings.Contains(text, "n10") {
		t.Error(text)
	}
	const only = "a node or a coordinator needs the token of the cluster itself"
	for _, args := range [][]string{
		{"agent", "--coordinator", h.at, "--name", "n9"}, {"coordinator", "--listen", "10.77.0.2:0"}, {"submit-token"}, {"agent", "--drain", "--name", "n10"},
	} {
		h.start(0, append(args, "--token-file", file)...).ends(125, only)
	}
}

// TestSubmitTokenOfNoCluster: without a cluster's token there is no submit token: a token that no
// coordinator has would be useless.
func TestSubmitTokenOfNoCluster(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	start(t, exec.Command(golaunch(t), "submit-token"), "HOME="+home, "GOLAUNCH_TOKEN=").
		ends(125, "there is no token here: copy "+home+"/.golaunch/token from the machine of the coordinator")
	if _, err := os.Stat(home + "/.golaunch"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one was made: %v", err)
	}
}

func TestBadInputToACluster(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 1)
	h.detach("a", 1, "--gpus-per-node", "1", "--", "sh", "-c", hung)
	stale := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(stale, []byte(strings.Repeat("o", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "epoch"), []byte("golaunch-store-0 X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(h.home, ".golaunch", h.at)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "--token-file", stale}, 125, "token"},
		{[]string{"--token-file", stale, "--detach", "--", "true"}, 125, "token"},
		{[]string{"agent", "--coordinator", h.at, "--token-file", stale}, 125, "token"},
		{[]string{"agent", "--coordinator", h.at, "--name", "n9"}, 125, "name"},
		{[]string{"agent", "--coordinator", h.at, "--name", "n2", "--gpus", "-1"}, 2, "gpus -1: 0 to 1024"},
		{[]string{"agent"}, 2, "an agent needs --coordinator HOST:PORT"},
		{[]string{"agent", "--coordinator", h.at, "--allow-run-as-root=false"}, 2, "gives everybody who has the token the rights of root on this node"},
		{[]string{"logs", "nothing"}, 2, `there is no job "nothing" here; golaunch jobs lists them (coordinator ` + h.at + ")"},
		{[]string{"stop", "nothing"}, 2, `there is no job "nothing" here`},
		{[]string{"logs", "a", "--rank", "x"}, 2, "--rank"},
		{[]string{"logs"}, 2, "golaunch logs JOB [-f]"},
		{[]string{"stop"}, 2, "stop which job? give its id, or --all"},
		{[]string{"stop", "a", "--all"}, 2, "stop which job?"},
		{[]string{"status", "here", "there"}, 2, "2 arguments"},
		{[]string{"status", "--coordinator", "10.77.0.2:29401"}, 125, "10.77.0.2:29401"},
		{[]string{"--job-id", "a", "--", "true"}, 2, "there is a job a already"},
		{[]string{"--within", "r", "--", "true"}, 2, "there is no reservation r"},
		{[]string{"--within", "a", "--", "true"}, 2, "job a is no reservation"},
		{[]string{"--gpu-ids", "0,0", "--gpus-per-node", "1", "--", "true"}, 2, "GPU 0"},
		{[]string{"--gpu-ids", "0", "--procs-per-node", "1", "--", "true"}, 2, "GPUs are chosen for a job that asks for none"},
		{[]string{"--coordinator", "none", "--detach", "--", "true"}, 2, "give its coordinator"},
		{[]string{"--coordinator", "none", "--backfill", "--", "true"}, 2, "give its coordinator"},
		{[]string{"coordinator", "--listen", "10.77.0.2"}, 125, "port 29400 of 10.77.0.2 is in use"},
		{[]string{"coordinator", "--listen", "10.77.0.2:0", "--state-dir", store}, 125, "another coordinator uses it; stop that one"},
		{[]string{"coordinator", "--listen", "10.77.0.2:0", "--state-dir", old}, 125, "an earlier golaunch kept its jobs there; use the version that wrote it, or another --state-dir"},
		{[]string{"coordinator", "--listen", "10.77.0.2:0", "--state-dir", stale}, 125, "cannot open the coordinator's log in " + stale},
		{[]string{"coordinator", "--listen", "10.77.0.2:x"}, 2, "HOST:PORT, HOST or :PORT"},
		{[]string{"coordinator", "--lease", "1ms"}, 2, "lease 1ms: at least 1s"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, out := h.start(0, c.args...).wait()
			var said []string
			for line := range strings.Lines(out) {
				if !strings.Contains(line, "on the cluster of") && !strings.Contains(line, "another coordinator is this machine's default") {
					said = append(said, line)
				}
			}
			if code != c.code || len(said) != 1 || !strings.Contains(said[0], c.says) {
				t.Errorf("exit code %d, want %d and one line with %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
	if j := h.status().job(t, "a"); j.Phase != "running" || j.Restarts != 0 {
		t.Errorf("the job: %+v", j)
	}
	h.start(1, "status").ends(125, "no coordinator runs on this machine; start one (golaunch coordinator), or name one (--coordinator HOST:PORT)")
	h.start(1, "--detach", "--", "true").ends(125, "no coordinator runs on this machine")
	h.start(1, "--", "sh", "-c", "echo rank $RANK on $MASTER_ADDR").ends(0, "rank 0 on 127.0.0.1")
}

// TestAClusterWithoutReaders: a cluster whose processes write into a full pipe goes on, and ends.
func TestAClusterWithoutReaders(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	full := filepath.Join(h.dir, "full")
	if err := syscall.Mkfifo(full, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := syscall.Open(full, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe)
	for err == nil {
		_, err = syscall.Write(pipe, make([]byte, 4096))
	}
	mute := func(node int, args ...string) *process {
		cmd := h.nodes[node].Command(append([]string{"sh", "-c", `exec "$0" "$@" >full 2>&1`, golaunch(t)}, args...)...)
		cmd.Dir = h.dir
		return start(t, cmd, "HOME="+h.home, "GOLAUNCH_COORDINATOR=")
	}
	coordinator := mute(0, "coordinator", "--listen", "10.77.0.2")
	agent := mute(1, "agent", "--coordinator", h.at, "--name", "n10", "--gpus", "2")
	h.join(2, "n9", 2) // the coordinator runs
	if out := h.do("--coordinator", h.at, "--nodes", "2", "--gpus-per-node", "2", "--", "sh", "-c", "echo up $RANK"); !strings.Contains(out, "up 3") {
		t.Errorf("the job prints %q", out)
	}
	agent.signal(syscall.SIGTERM)
	agent.ends(143)
	coordinator.signal(syscall.SIGTERM)
	coordinator.ends(0)
}
