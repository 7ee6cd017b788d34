package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/watch"
	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/launcher/report"
)

// heads is a cluster on nodes of its own: the coordinator on the first, n10 and n9 on the others.
type heads struct {
	t     *testing.T
	nodes []nettest.Node
	// home has the token of all nodes and the coordinator's store; dir is the directory in which
	// jobs are submitted.
	home, dir string
	at        string
}

const clusterAt = "10.77.0.2:29400"

func newCluster(t *testing.T) *heads {
	t.Helper()
	nodes, _ := cluster(t)
	return &heads{t: t, nodes: nodes, home: t.TempDir(), dir: t.TempDir(), at: clusterAt}
}

// up is a cluster whose agents have declared GPUs.
func up(t *testing.T, gpus int) (h *heads, coordinator, n10, n9 *process) {
	t.Helper()
	h = newCluster(t)
	coordinator = h.coordinate()
	n10, n9 = h.join(1, "n10", gpus), h.join(2, "n9", gpus)
	return h, coordinator, n10, n9
}

// start runs golaunch on a node.
func (h *heads) start(node int, args ...string) *process {
	h.t.Helper()
	cmd := h.nodes[node].Command(append([]string{golaunch(h.t)}, args...)...)
	cmd.Dir = h.dir
	return start(h.t, cmd, "HOME="+h.home, "GOLAUNCH_COORDINATOR=")
}

func (h *heads) coordinate(args ...string) *process {
	h.t.Helper()
	p := h.start(0, append([]string{"coordinator", "--listen", "10.77.0.2"}, args...)...)
	p.line("golaunch agent --coordinator " + regexp.QuoteMeta(h.at))
	return p
}

func (h *heads) join(node int, name string, gpus int, args ...string) *process {
	h.t.Helper()
	p := h.start(node, append([]string{"agent", "--coordinator", h.at, "--name", name, "--num-gpus", fmt.Sprint(gpus)}, args...)...)
	p.line(name + " .* is in the cluster of ")
	return p
}

// do runs a verb on the coordinator's node, and checks that it succeeds.
func (h *heads) do(args ...string) string {
	h.t.Helper()
	return ended(h.t, h.start(0, args...))
}

// detach submits a detached job, and returns once each of its ranks has printed "up".
func (h *heads) detach(id string, ranks int, args ...string) {
	h.t.Helper()
	if out := h.do(append([]string{"run", "--detach", "--job-id", id, "--backoff", "0s"}, args...)...); !strings.HasSuffix(out, id+"\n") {
		h.t.Errorf("--detach prints %q", out)
	}
	follow := h.start(0, "logs", "-f", id)
	for rank := range ranks {
		follow.line(fmt.Sprintf("up %d", rank))
	}
}

// touch makes a file where the ranks run.
func (h *heads) touch(name string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// gate makes a FIFO from which each process reads a line, and returns a function that writes n
// lines. Processes wait for their line at no cost, and a late process still finds its line.
func gate(t *testing.T, fifo string) (write func(n int)) {
	t.Helper()
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	return func(n int) {
		t.Helper()
		if _, err := pipe.WriteString(strings.Repeat("\n", n)); err != nil {
			t.Fatal(err)
		}
	}
}

// clusterStatus is the output of golaunch status --json.
type clusterStatus struct{ listing.Cluster }

// status returns the output of golaunch status --json.
func (h *heads) status() (s clusterStatus) {
	h.t.Helper()
	out := h.do("status", "--json", "--all")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		h.t.Fatalf("%v in %s", err, out)
	}
	return s
}

func (s clusterStatus) job(t *testing.T, id string) listing.Job {
	t.Helper()
	i := slices.IndexFunc(s.Jobs, func(j listing.Job) bool { return j.ID == id })
	if i < 0 {
		t.Fatalf("no job %s in %+v", id, s.Jobs)
	}
	return s.Jobs[i]
}

func (s clusterStatus) node(t *testing.T, name string) listing.Node {
	t.Helper()
	i := slices.IndexFunc(s.Nodes, func(n listing.Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no node %s in %+v", name, s.Nodes)
	}
	return s.Nodes[i]
}

// hung is a rank that prints "up" and ends when it is stopped.
const hung = "echo up $RANK; exec sleep 1000"

func TestAJobOnACluster(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 2)
	job := []string{
		"--nodes", "2", "--gpus-per-node", "2", "--max-restarts", "0", "--env", "FLAVOUR=salt", "--", "sh", "-c",
		"echo rank $RANK of $WORLD_SIZE on $GOLAUNCH_NODE at $MASTER_ADDR in $(pwd) with $FLAVOUR; [ $RANK != 3 ] || exit 7; sleep 1000",
	}
	here := h.start(0, job...)
	here.line("on the cluster of " + clusterAt + ", which this machine heads")
	elsewhere := h.start(1, append([]string{"--coordinator", h.at}, job...)...)
	for _, p := range []*process{here, elsewhere} {
		p.ends(7, "[r3 n10] rank 3 of 4 on n10 at 10.77.0.9 in "+h.dir+" with salt", "rank 3 on n10",
			"golaunch logs --coordinator "+clusterAt)
	}
	h.start(0, "--coordinator", "none", "--", "sh", "-c", "echo alone on $MASTER_ADDR").ends(0, "alone on 127.0.0.1")
	h.start(0, "--", "sh", "-c", "exit 3", "--max-restarts").ends(3)
	for _, n := range h.status().Nodes {
		if n.GPUs != 2 || n.Used != 0 || n.State != report.NodeReady {
			t.Errorf("after the jobs: %+v", n)
		}
	}
}

func TestLogsOfACluster(t *testing.T) {
	t.Parallel()
	h, _, _, n9 := up(t, 1)
	const twice = "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; echo complaint >&2; echo up $RANK; " +
		"[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK = 0 ] && touch spoke && sleep 1000; while [ ! -e spoke ]; do sleep 0.05; done; exit 9; }; " +
		"while [ ! -e end ]; do sleep 0.05; done; echo end $RANK"
	h.detach("a", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", twice)
	follow := h.start(1, "logs", "--coordinator", h.at, "a", "--follow")
	follow.line("attempt 1 rank 1")
	h.touch("end")
	follow.ends(0, "[r0 n9] attempt 0 rank 0", "[r1 n10] attempt 0 rank 1", "[r0 n9] attempt 1 rank 0", "[r0 n9] end 0", "[r1 n10] end 1",
		"[r1 n10] complaint")
	for _, c := range []struct {
		args  []string
		lines []string
	}{
		{[]string{"--rank", "1", "--attempt", "0", "--prefix=false"}, []string{"attempt 0 rank 1", "complaint", "up 1"}},
		{[]string{"--rank", "0", "--attempt", "1"}, []string{"[r0 n9] attempt 1 rank 0", "[r0 n9] complaint", "[r0 n9] up 0", "[r0 n9] end 0"}},
		{[]string{"--rank", "5"}, nil},
		{[]string{"--attempt", "7"}, nil},
	} {
		out := strings.Split(strings.TrimSuffix(h.do(append([]string{"logs", "a"}, c.args...)...), "\n"), "\n")
		want := append(slices.Clone(c.lines), "")[:max(1, len(c.lines))]
		slices.Sort(out)
		slices.Sort(want)
		if !slices.Equal(out, want) {
			t.Errorf("logs a %q: %q, want %q", c.args, out, want)
		}
	}
	var line watch.Line
	out := h.do("logs", "a", "--json", "--rank", "0", "--attempt", "1")
	if err := json.Unmarshal([]byte(out[:strings.IndexByte(out, '\n')]), &line); err != nil || line.Node != "n9" || line.Attempt != 1 || line.Text == "" {
		t.Errorf("logs --json prints %s (%v)", out, err)
	}
	if strings.Count(out, "\n") != 4 || !strings.Contains(out, `"stream":"stderr","text":"complaint"}`) {
		t.Errorf("logs --json prints %s", out)
	}
	if j := h.status().job(t, "a"); j.Result == nil || j.Result.Code != 0 || j.Restarts != 1 || j.Finished.IsZero() || !j.Detached {
		t.Errorf("after its end: %+v", j)
	} else if g := j.Goodput; g == nil || g.Unit != "GPU" || g.Interruptions != 1 || g.Training <= 0 || len(g.Costs) != 1 ||
		g.Costs[0].Node != "n10" || !reflect.DeepEqual(g, j.Result.Goodput) {
		t.Errorf("goodput %+v", g)
	}
	if out := h.do("jobs", "--all"); !strings.Contains(out, "goodput of a: ") {
		t.Errorf("jobs prints %s", out)
	}

	n9.signal(syscall.SIGTERM)
	n9.ends(143)
	h.start(0, "logs", "a").ends(125, "[r1 n10] attempt 1 rank 1", "node n9 is not there any more: its ranks' output is in its own files")
	h.start(0, "logs", "a", "--json").ends(125, `"text":"attempt 1 rank 1"`, `"missing":"node n9 is not there any more`)
}

func TestJobsShareACluster(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 2)
	h.detach("half", 4, "--gpus-per-node", "2", "--gpus-per-rank", "0.5", "--", "sh", "-c",
		"echo up $RANK with $GOLAUNCH_GPU_SHARE of GPU $CUDA_VISIBLE_DEVICES; exec sleep 1000")
	ranks := h.do("logs", "half")
	for rank, gpu := range []int{0, 0, 1, 1} {
		if line := fmt.Sprintf("up %d with 0.5 of GPU %d\n", rank, gpu); !strings.Contains(ranks, line) {
			t.Errorf("no %q in %s", line, ranks)
		}
	}
	h.detach("small", 1, "--gpus-per-node", "1", "--", "sh", "-c", hung)

	big := h.start(0, "--job-id", "big", "--nodes", "2", "--gpus-per-node", "2", "--", "sh", "-c", "echo big $RANK")
	big.line("golaunch: cannot place the job yet: .*gpu[01] held by job half")
	second := h.start(0, "--job-id", "second", "--gpus-per-node", "1", "--", "sh", "-c", "echo second")
	second.line("golaunch: waiting behind job big, which needs 2 nodes with 2 GPUs each")
	h.start(0, "--gpus-per-node", "1", "--placement-timeout", "300ms", "--", "true").ends(124, "waiting behind job second")
	h.start(0, "--nodes", "3", "--procs-per-node", "1", "--backfill", "--placement-timeout", "300ms", "--", "true").
		ends(124, "waiting behind job second")

	s := h.status()
	j, text := s.job(t, "half"), h.do("metrics")
	if j.Ranks != 4 || j.GPUs != 2 || metric(text, `golaunch_job_gpus{job="half"}`) != 2 || metric(text, `golaunch_gpus{state="used"}`) != 3 {
		t.Errorf("four ranks on two GPUs: %+v, and\n%s", j, text)
	}
	for id, waits := range map[string]string{"big": "cannot place the job yet", "second": "behind job big"} {
		if j := s.job(t, id); j.Phase != "gathering" || !strings.Contains(j.Waits, waits) {
			t.Errorf("%s: %+v, want it to wait: %s", id, j, waits)
		}
	}
	if out := h.do("status"); !strings.Contains(out, "waiting behind job big") || !strings.Contains(out, "n9") {
		t.Errorf("status prints\n%s", out)
	}
	h.do("stop", "half")
	if j := h.status().job(t, "big"); j.Result != nil || j.Phase != "gathering" {
		t.Errorf("the first in the queue has started on half of what it needs: %+v", j)
	}
	h.do("stop", "small")
	big.ends(0, "big 3")
	second.ends(0, "second")
}

// TestBackfill: small jobs pass a big job that waits, but not on the nodes that the big job will
// get.
func TestBackfill(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 2)
	h.join(0, "n2", 2)
	h.detach("held", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", hung)
	big := h.start(0, "--job-id", "big", "--nodes", "2", "--gpus-per-node", "2", "--", "sh", "-c", "echo big $RANK")
	big.line("cannot place the job yet: found 1 of 2 nodes")
	small := []string{"--gpus-per-node", "1", "--placement-timeout", "300ms"}
	h.start(0, append(small, "--", "true")...).ends(124, "waiting behind job big")
	h.detach("passes", 1, append(small, "--backfill", "--", "sh", "-c", hung)...)
	h.start(0, append(small, "--backfill", "--", "true")...).ends(124, "waiting behind job big")
	h.do("stop", "held")
	big.ends(0, "big 3")
	if j := h.status().job(t, "passes"); j.Phase != "running" {
		t.Errorf("the job that passed: %+v", j)
	}
}

// TestPriorities: a job preempts another one, which gets notice, gives up all its nodes and starts
// again.
func TestPriorities(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate("--capacity", h.capacity("limits:\n  '*': {production: 2, interactive: 0}\n"))
	h.join(1, "n10", 2)
	h.join(2, "n9", 2)
	const saves = `trap 'echo saves $RANK; exit 0' TERM; echo up $RANK; sleep 1000 & wait`
	h.detach("night", 4, "--nodes", "2", "--gpus-per-node", "2", "--priority", "batch", "--drain-time", "1s", "--", "sh", "-c", saves)
	urgent := h.start(0, "--job-id", "urgent", "--gpus-per-node", "2", "--priority", "production", "--", "sh", "-c", "echo urgent $RANK")
	urgent.line(`waiting for job night( of \S+)? \(batch, being preempted\)`)
	urgent.ends(0, "urgent 1")
	h.start(0, "logs", "-f", "night", "--attempt", "1").line("up 3")
	h.start(0, "logs", "night", "--attempt", "0").ends(0, "saves 0", "saves 3")
	if j := h.status().job(t, "night"); j.Restarts != 0 || j.Priority != "batch" || j.Phase != "running" {
		t.Errorf("the preempted job: %+v", j)
	}
	h.start(0, "--gpus-per-node", "1", "--", "true").ends(2, "may hold no GPUs with priority interactive; use another --priority")
	h.start(0, "--nodes", "2", "--gpus-per-node", "2", "--priority", "production", "--", "true").ends(2, "the job needs 4 GPUs, and ", " may hold 2 with priority production")
	h.start(0, "--priority", "urgent", "--coordinator", h.at, "--", "true").ends(2, `priority "urgent": production, interactive or batch`)
	h.start(0, "--priority", "batch", "--coordinator", "none", "--", "true").ends(2, "give its coordinator")
}

// stubborn is a rank whose processes, in and out of its session, ignore SIGTERM.
const stubborn = `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 1000' & (setsid sleep 1000 &); echo up $RANK; wait; sleep 1000`

func TestStop(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 2)
	marker := mark(t)
	job := []string{"--nodes", "2", "--gpus-per-node", "1", "--env", marker, "--grace"}
	h.detach("a", 2, append(job, "1s", "--", "sh", "-c", stubborn)...)
	h.detach("b", 2, append(job, "10m", "--", "sh", "-c", stubborn)...)
	h.do("stop", "b", "--kill")
	h.do("stop", "a")
	if left := marked(t, marker); len(left) > 0 {
		t.Errorf("after stop: processes %v are left", left)
	}
	attached := h.start(1, append([]string{"--coordinator", h.at}, append(job, "1s", "--", "sh", "-c", stubborn)...)...)
	attached.line("up 1")
	h.detach("c", 2, append(job, "1s", "--", "sh", "-c", stubborn)...)
	var out struct{ Stopped []string }
	if text := h.do("stop", "--all", "--json"); json.Unmarshal([]byte(text), &out) != nil || len(out.Stopped) != 2 || out.Stopped[1] != "c" {
		t.Errorf("stop --all --json prints %s", text)
	}
	attached.ends(143, "stopped by golaunch stop")
	if left := marked(t, marker); len(left) > 0 {
		t.Errorf("after stop --all: processes %v are left", left)
	}
	h.start(0, "stop", "a").ends(0, "nothing to stop")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := h.start(0, append(job, "1s", "--", "sh", "-c", stubborn)...)
		p.line("up 1")
		p.signal(sig)
		p.ends(128 + int(sig))
		gone(t, marker)
	}
}

func TestTorchOnACluster(t *testing.T) {
	t.Parallel()
	needTorch(t, python)
	script, err := filepath.Abs("../../examples/torch-ddp/train.py")
	if err != nil {
		t.Fatal(err)
	}
	h, _, _, _ := up(t, 2)
	out := h.do("--nodes", "2", "--procs-per-node", "1", "--backoff", "0s", "--env", "GLOO_SOCKET_IFNAME=eth0", "--", python, script,
		"--steps", "60", "--die-at", "25", "--die-rank", "1", "--checkpoint", "ddp.pt")
	if !strings.Contains(out, "attempt 1: resumed at step 20") {
		t.Errorf("it does not resume:\n%s", out)
	}
	loss(t, out)
}

// TestStacksOfASilentNode: the verb stacks prints the stacks of the other nodes, and exits with 1.
func TestStacksOfASilentNode(t *testing.T) {
	t.Parallel()
	h, _, _, n9 := up(t, 0)
	defer n9.signal(syscall.SIGCONT)
	h.do("run", "--detach", "--job-id", "a", "--nodes", "2", "--procs-per-node", "1", "--", "sh", "-c", "echo up; exec sleep 1000")
	logs := h.start(0, "logs", "-f", "a")
	logs.line(`up`)
	logs.line(`up`)
	n9.signal(syscall.SIGSTOP)
	code, text := h.start(0, "stacks", "a", "--timeout", "10s").wait()
	if code != 1 || !strings.Contains(text, "n9") || !strings.Contains(text, "sleep") {
		t.Errorf("it ends with %d: %s", code, text)
	}
	n9.signal(syscall.SIGCONT)
	h.do("stop", "--all")
}
