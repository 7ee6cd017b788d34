package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// counters are ranks that count until a file for each of them exists: then rank 1 fails, and the
// others succeed.
const counters = `echo up $RANK; echo rank $RANK is $$
i=0; while [ ! -e end$RANK ]; do i=$((i+1)); echo rank $RANK counts $i; sleep 0.01; done
echo rank $RANK ends as $$ at $i; [ $RANK != 1 ] || exit 7`

// adopting is a node whose ranks outlive its agent.
func (h *heads) adopting(node int, name string) *process {
	h.t.Helper()
	return h.join(node, name, 1, "--adopt", "--log-dir", h.adoptDir())
}

func (h *heads) adoptDir() string { return filepath.Join(h.home, "logs") }

// upAdopting is a cluster of two nodes whose ranks outlive their agents.
func upAdopting(t *testing.T, args ...string) (h *heads, coordinator, n10, n9 *process) {
	t.Helper()
	h = newCluster(t)
	coordinator = h.coordinate(args...)
	return h, coordinator, h.adopting(1, "n10"), h.adopting(2, "n9")
}

// rank returns the process of a rank that has printed its pid.
func (p *process) rank(n int) pidfd {
	p.t.Helper()
	text, _ := p.out.read()
	is := regexp.MustCompile(fmt.Sprintf(`rank %d is (\d+)\n`, n)).FindStringSubmatch(text)
	if is == nil {
		p.t.Fatalf("rank %d has not printed its pid:\n%s", n, text)
	}
	pid, err := strconv.Atoi(is[1])
	if err != nil {
		p.t.Fatal(err)
	}
	fd, err := pidfdOpen(pid)
	if err != nil {
		p.t.Fatalf("process %d, rank %d: %v", pid, n, err)
	}
	return fd
}

// onward checks that both ranks continue to count from the seen number.
func (p *process) onward() {
	p.t.Helper()
	for rank := range 2 {
		text, _ := p.out.read()
		p.line(fmt.Sprintf("rank %d counts %d$", rank, strings.Count(text, fmt.Sprintf("rank %d counts", rank))+20))
	}
}

// unharmed ends a job of counters, and checks that it ran once, without a gap, and ends with rank
// 1's exit code.
func unharmed(t *testing.T, h *heads, job, coordinator *process) {
	t.Helper()
	h.touch("end0")
	job.line("rank 0 ends as")
	h.touch("end1")
	job.ends(7, "rank 1 on n10 (gpu 0) exited with code 7")
	text, _ := job.out.read()
	if counted(t, text, 0) == counted(t, text, 1) {
		t.Errorf("the ranks are:\n%s", text)
	}
	files := h.do("logs", "a")
	counted(t, files, 0)
	counted(t, files, 1)
	if j := h.status().job(t, "a"); j.Result.Code != 7 || j.Restarts != 0 || j.Attempt != 0 {
		t.Errorf("the job: %+v", j)
	}
	if said, _ := coordinator.out.read(); strings.Contains(said, "lost") || strings.Contains(said, "attempt 1") {
		t.Errorf("the coordinator has seen a loss:\n%s", said)
	}
}

func (h *heads) counters(args ...string) *process {
	h.t.Helper()
	job := h.start(0, append(args, "--job-id", "a", "--nodes", "2", "--gpus-per-node", "1", "--max-restarts", "0", "--grace", "1s",
		"--env", mark(h.t), "--", "sh", "-c", counters)...)
	job.line("rank 0 counts 9$")
	job.line("rank 1 counts 9$")
	return job
}

// TestAnAgentIsStartedAgain kills and starts both agents in turn, while ranks count and one rank
// ends.
func TestAnAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, n9 := upAdopting(t)
	job := h.counters()
	first := job.rank(0)
	n10.kill()
	n9.kill()
	h.touch("end0")
	if !first.ended(patience) {
		t.Fatal("rank 0 does not end without its agent")
	}
	h.adopting(1, "n10")
	n9 = h.adopting(2, "n9")
	job.line("rank 0 ends as")
	n9.kill() // once more, after the end of the rank was reported
	h.adopting(2, "n9")
	unharmed(t, h, job, coordinator)
	gone(t, mark(t))
}

// twice has ranks that meet at the store, and meet again over the same connections when a file
// exists: each rank sets a key, and waits for both keys.
const twice = `exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT
printf '\000\316\367\205\074' >&3
meet() {
	printf '\001\002\000\000\000\000\000\000\000%s%d\000\000\000\000\000\000\000\000' $1 $RANK >&3
	printf '\006\002\000\000\000\000\000\000\000\002\000\000\000\000\000\000\000%s0\002\000\000\000\000\000\000\000%s1' $1 $1 >&3
	head -c 1 <&3 >/dev/null
}
meet a; echo rank $RANK has met the other at $MASTER_ADDR
while [ ! -e go ]; do sleep 0.01; done
meet b; echo rank $RANK has met the other again`

// TestAProxyOutlivesItsAgent: a proxy and the store outlive their agents. Ranks on both nodes meet
// again after the agents were killed and started again.
func TestAProxyOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	h, _, n10, n9 := upAdopting(t)
	job := h.start(0, "--job-id", "a", "--nodes", "2", "--gpus-per-node", "1", "--max-restarts", "0", "--grace", "1s", "--store", "proxy",
		"--env", mark(t), "--", "bash", "-c", twice)
	job.line("rank 0 has met the other at 10.77.0.9$")
	job.line("rank 1 has met the other at 10.77.0.10$")
	n10.kill()
	n9.kill()
	h.adopting(1, "n10")
	h.adopting(2, "n9")
	h.touch("go")
	job.ends(0, "rank 0 has met the other again", "rank 1 has met the other again")
	gone(t, mark(t))
}

// TestTheStoreOfAProxyIsLost: the store is lost with its node. The proxy reports this, and the next
// attempt has another store and another proxy.
func TestTheStoreOfAProxyIsLost(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate()
	n10, n9 := h.join(1, "n10", 1), h.join(2, "n9", 1)
	job := h.start(0, "--job-id", "a", "--nodes", "2", "--gpus-per-node", "1", "--grace", "1s", "--store", "proxy", "--backoff", "0s",
		"--env", mark(t), "--", "bash", "-c", twice)
	job.line("rank 0 has met the other at 10.77.0.9$")
	job.line("rank 1 has met the other at 10.77.0.10$")
	n9.kill()
	n10.line(`the proxy at 10\.77\.0\.10:\d+ must end \(open connections: 1\): the store at 10\.77\.0\.9:\d+`)
	h.join(2, "n9", 1)
	h.touch("go")
	job.ends(0, "rank 0 has met the other again", "rank 1 has met the other again", "after 1 restart")
	gone(t, mark(t))
}

// TestAnAgentHandsOver: an agent hands its ranks over when it gets SIGHUP. Before that, a second
// agent of its name was refused.
func TestAnAgentHandsOver(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, _ := upAdopting(t)
	job := h.counters()
	h.start(1, "agent", "--adopt", "--coordinator", h.at, "--name", "n10", "--gpus", "1", "--log-dir", h.adoptDir()).ends(2,
		fmt.Sprintf("/logs/n10 is in use by another run (pid %d on ", n10.cmd.Process.Pid), "): give this agent another --name or --log-dir")
	n10.signal(syscall.SIGHUP)
	n10.ends(129, "n10 leaves its ranks to the next agent")
	h.adopting(1, "n10")
	job.onward()
	unharmed(t, h, job, coordinator)
	gone(t, mark(t))
}

// TestAgentsAndTheCoordinatorAreKilled: the agents and the coordinator are killed at once, and all
// are started again.
func TestAgentsAndTheCoordinatorAreKilled(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, n9 := upAdopting(t)
	job := h.counters()
	coordinator.kill()
	n10.kill()
	n9.kill()
	coordinator = h.coordinate()
	h.adopting(1, "n10")
	h.adopting(2, "n9")
	job.onward()
	unharmed(t, h, job, coordinator)
	gone(t, mark(t))
}

// TestTheKeeperIsKilled: the keeper is killed, alone or with its agent. The ranks die, and the job
// starts again.
func TestTheKeeperIsKilled(t *testing.T) {
	t.Parallel()
	for name, agentToo := range map[string]bool{"alone": false, "with its agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, coordinator, n10, _ := upAdopting(t)
			marker := mark(t)
			job := h.start(0, "--nodes", "2", "--gpus-per-node", "1", "--backoff", "0s", "--env", marker, "--", "sh", "-c",
				"echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; echo rank $RANK is $$; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000")
			job.line("attempt 0 rank 0")
			job.line("rank 1 is ")
			rank := job.rank(1)
			keeper := child(t, n10.cmd.Process.Pid, "rankkeeper")
			if agentToo {
				n10.signal(syscall.SIGSTOP) // otherwise it would start another keeper
			}
			kill(t, keeper, syscall.SIGKILL)
			if agentToo {
				n10.kill()
			} else {
				n10.line("the keeper of the ranks has died, and the ranks with it")
				n10.line("its ranks are dead, and it joins again") // the order of these messages does not matter
			}
			if !rank.ended(patience) {
				t.Error("rank 1 lives on")
			}
			coordinator.line("n10 .*(was lost|is gone)")
			if agentToo {
				h.adopting(1, "n10")
			}
			job.ends(0, "attempt 1 rank 0", "attempt 1 rank 1")
			gone(t, marker)
		})
	}
}

// TestNoAgentComes: no agent starts within the lease, so the ranks die, and the job starts again
// elsewhere. A later agent is a new node.
func TestNoAgentComes(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, _ := upAdopting(t, "--lease", "1s")
	marker := mark(t)
	h.detach("a", 2, "--nodes", "2", "--gpus-per-node", "1", "--env", marker, "--", "sh", "-c",
		"echo up $RANK in attempt $TORCHELASTIC_RESTART_COUNT; [ -e end ] || exec sleep 1000")
	n10.kill()
	coordinator.line("node n10 was lost: its agent has died")
	gone(t, marker)
	h.touch("end")
	h.adopting(1, "n10")
	follow := h.start(0, "logs", "-f", "a")
	follow.line("up 0 in attempt 1")
	follow.line("up 1 in attempt 1")
}

// ready is a rank that gets a notice of its node's end, and is ready once a file exists.
const ready = `trap 'echo told: $(cat $GOLAUNCH_NOTICE_FILE)' USR1
echo up $RANK
test $TORCHELASTIC_RESTART_COUNT = 0 || { echo resumed on $GOLAUNCH_NODE; exit 0; }
while [ ! -e go ]; do sleep 0.01; done
echo found: $(cat $GOLAUNCH_NOTICE_FILE); touch $GOLAUNCH_NOTICE_FILE.ready
while :; do sleep 1000 & wait; done`

// TestANoticeOutlivesItsAgent: ranks get one notice with their deadline, and the next agent learns
// that they are ready.
func TestANoticeOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	h, _, _, n9 := upAdopting(t)
	h.detach("a", 1, "--gpus-per-node", "1", "--notice-signal", "USR1", "--", "sh", "-c", ready)
	follow := h.start(0, "logs", "-f", "a")
	swap := h.start(0, "swap", "n9", "--within", "10m")
	follow.line("told: ")
	n9.kill()
	n9 = h.adopting(2, "n9")
	h.touch("go")
	follow.line("resumed on n10")
	n9.ends(0, "drained")
	swap.ends(0)
	text, _ := follow.out.read()
	notices := regexp.MustCompile(`(?m)(?:told|found): (.*)$`).FindAllStringSubmatch(text, -1)
	if len(notices) != 2 || notices[0][1] != notices[1][1] {
		t.Errorf("the notices are:\n%s", text)
	}
}
