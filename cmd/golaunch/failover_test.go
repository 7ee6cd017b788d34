package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// parliament is a job on three nodes with a spare, started by the same command on each. In attempt
// 0 its ranks run until they are killed. In attempt 1 they succeed if no rank of attempt 0 is
// alive; a killed rank stays a zombie while its parent is stopped.
type parliament struct {
	nodes []nettest.Node
	procs []*process
	// marker is in the environment of all ranks.
	marker string
}

func newParliament(t *testing.T) parliament {
	p := parliament{
		nodes:  nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.0.5"),
		marker: mark(t),
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	rank := `cd ` + dir + `; a=$TORCHELASTIC_RESTART_COUNT
		echo $$ > pid.$a.$RANK; echo attempt $a rank $RANK of $WORLD_SIZE on $GOLAUNCH_NODE
		[ $a != 0 ] || exec sleep 1000
		for f in pid.0.*; do grep -q "^State:.[ZX]" /proc/$(cat $f)/status || [ ! -e /proc/$(cat $f) ] || exit 77; done`
	for i, n := range p.nodes {
		if i == 3 {
			p.procs[0].line("attempt 0 runs")
		}
		p.procs = append(p.procs, start(t, join(t, n, fmt.Sprintf("n%d", i), token, "--nodes", "3", "--spares", "1", "--lease", "24s",
			"--procs-per-node", "1", "--env", p.marker, "--", "sh", "-c", rank)))
		if i == 0 {
			p.procs[0].line("waiting for 2 of 3 nodes")
		}
	}
	p.procs[0].line("n3 .*spare")
	p.procs[0].line("can take over from n0: n[1-3], n[1-3]$")
	return p
}

// goesOn checks that the job succeeds on all nodes but the first, after one restart.
func (p parliament) goesOn(t *testing.T) {
	t.Helper()
	led := 0
	for i, q := range p.procs[1:] {
		code, text := q.wait()
		if code != 0 || !strings.Contains(text, "attempt 1 rank") {
			t.Errorf("n%d: exit code %d, want 0 after attempt 1", i+1, code)
		}
		led += strings.Count(text, "leads the job from now on")
	}
	if led == 0 {
		t.Error("no node took over")
	}
	gone(t, p.marker)
}

func TestTheLeadingNodeIsKilled(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.procs[0].cmd.Process.Kill()
	p.goesOn(t)
}

// TestTheLeadingNodeIsCutOff: the node must know that it is alone, and nothing more.
func TestTheLeadingNodeIsCutOff(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.nodes[0].Cut(t)
	if code, text := p.procs[0].wait(); code != 125 || !strings.Contains(text, "a minority must not act") {
		t.Errorf("n0 ends with %d, want 125 and why:\n%s", code, text)
	}
	p.goesOn(t)
}

// TestTheLeadingNodeIsStopped: the leading node is stopped for longer than its lease. When it
// continues, it still believes that it leads, but this has no effect.
func TestTheLeadingNodeIsStopped(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	leader := p.procs[0].cmd.Process.Pid
	kill(t, leader, syscall.SIGSTOP)
	for _, q := range p.procs[1:] {
		q.line("attempt 1 rank")
	}
	kill(t, leader, syscall.SIGCONT)
	p.procs[0].ends(125, "node n0 ")
	p.goesOn(t)
}

// TestNoMajority: each node is alone.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.nodes[1].Cut(t)
	p.nodes[2].Cut(t)
	p.nodes[3].Cut(t)
	for i, q := range p.procs {
		if code, text := q.wait(); code != 125 || !strings.Contains(text, "a minority must not act") {
			t.Errorf("n%d ends with %d, want 125 and why:\n%s", i, code, text)
		}
	}
	gone(t, p.marker)
}

// TestTheLeadingNodeIsStartedAgain: the first node, which leads, is killed and started again with
// the same command, twice. Then another node is, which can ask only the first node for the job.
// Each restarted node joins the job, which has another leader by now, and takes its ranks again.
func TestTheLeadingNodeIsStartedAgain(t *testing.T) {
	t.Parallel()
	nodes, token := nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	marker, logs, end := mark(t), t.TempDir(), filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func(i int) *process {
		return start(t, join(t, nodes[i], fmt.Sprintf("n%d", i), token, "--nodes", "3", "--lease", "15s", "--procs-per-node", "1",
			"--max-restarts", "1", "--log-dir", logs, "--env", marker, "--", "sh", "-c",
			`a=$TORCHELASTIC_RESTART_COUNT; echo attempt $a rank $RANK on $GOLAUNCH_NODE
			[ $a$RANK = 30 ] && read line < $0 && exit 7; exec sleep 1000`, end))
	}
	all := []*process{begin(0), begin(1), begin(2)}
	all[0].line("can take over from n0: n[12], n[12]$")
	again := func(i, attempt int) {
		t.Helper()
		kill(t, all[i].cmd.Process.Pid, syscall.SIGKILL)
		all[i].ends(-1)
		all[i] = begin(i)
		for rank, p := range all {
			p.line(fmt.Sprintf("attempt %d rank %d on n%d", attempt, rank, rank))
		}
	}
	again(0, 1)
	leader := 1
	if text, _ := all[1].out.read(); !strings.Contains(text, "n1 leads the job from now on") {
		leader = 2
	}
	all[leader].line(fmt.Sprintf("can take over from n%d: (n0, n%d|n%[2]d, n0)$", leader, 3-leader))
	again(0, 2)
	again(3-leader, 3)
	// Rank 0 fails when every rank has been seen: if it failed at once, others would be stopped
	// before they have printed anything.
	if err := os.WriteFile(end, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		p.ends(7)
		if text, _ := p.out.read(); i == 0 && !strings.Contains(text, fmt.Sprintf(": node n%d leads this job already, at ", leader)) {
			t.Errorf("n0 does not say which leader it joins:\n%s", text)
		}
	}
	if dirs, err := os.ReadDir(logs); err != nil || len(dirs) != 1 {
		t.Errorf("logs of %v jobs, %v", dirs, err)
	}
	gone(t, marker)
}
