package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/nettest"
)

// parliament is a job on three nodes with a spare, the same command on each, whose ranks run until they are killed in attempt 0, and end
// well in attempt 1 if none of attempt 0 is alive then; one that was killed stays a zombie while its parent is stopped.
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
		p.procs = append(p.procs, start(t, join(t, n, fmt.Sprintf("n%d", i), token, "--nodes", "3", "--spares", "1", "--lease", "9s",
			"--procs-per-node", "1", "--env", p.marker, "--", "sh", "-c", rank)))
		if i == 0 {
			p.procs[0].line("waiting for 2 of 3 nodes")
		}
	}
	p.procs[0].line("n3 .*spare")
	p.procs[0].line("can take over from n0: n[1-3], n[1-3]$")
	return p
}

// goesOn wants the job to end well on all nodes but the first, after one restart.
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
		t.Error("nobody took over")
	}
	gone(t, p.marker)
}

func TestTheLeadingNodeIsKilled(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.procs[0].cmd.Process.Kill()
	p.goesOn(t)
}

// TestTheLeadingNodeIsCutOff: it must not know more of the job than that it is alone.
func TestTheLeadingNodeIsCutOff(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.nodes[0].Cut(t)
	if code, text := p.procs[0].wait(); code != 125 || !strings.Contains(text, "a minority does not act") {
		t.Errorf("n0 ends with %d, want 125 and why:\n%s", code, text)
	}
	p.goesOn(t)
}

// TestTheLeadingNodeIsStopped for longer than it has a lease: what it takes itself for when it goes on does not count.
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

// TestNobodyHasAMajority: each node is alone.
func TestNobodyHasAMajority(t *testing.T) {
	t.Parallel()
	p := newParliament(t)
	p.nodes[1].Cut(t)
	p.nodes[2].Cut(t)
	p.nodes[3].Cut(t)
	for i, q := range p.procs {
		if code, text := q.wait(); code != 125 || !strings.Contains(text, "a minority does not act") {
			t.Errorf("n%d ends with %d, want 125 and why:\n%s", i, code, text)
		}
	}
	gone(t, p.marker)
}
