package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// match waits for a line and returns the texts of its groups.
func (p *process) match(pattern string) []string {
	p.t.Helper()
	p.line(pattern)
	text, _ := p.out.read()
	return regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(text)
}

// pid waits for a line with a group that has the number of a process.
func (p *process) pid(pattern string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.match(pattern)[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// ends checks the exit code, and that the output has each of the words.
func (p *process) ends(want int, words ...string) {
	p.t.Helper()
	code, text := p.wait()
	if code != want {
		p.t.Errorf("%v: exit code %d, want %d", p.cmd.Args, code, want)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			p.t.Errorf("%v does not say %q", p.cmd.Args, w)
		}
	}
}

// child finds the process that another one started under a name. A list of children may lack one
// while threads and other children end (proc_pid_children(5)), so it is read until it has the
// child.
func child(t *testing.T, parent int, name string) int {
	t.Helper()
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			text, _ := os.ReadFile(list) // a thread may have ended
			for _, field := range strings.Fields(string(text)) {
				command, _ := os.ReadFile("/proc/" + field + "/cmdline")
				if pid, err := strconv.Atoi(field); err == nil && strings.HasPrefix(string(command), name+"\x00") {
					return pid
				}
			}
		}
	}
	t.Fatalf("process %d has no child %s", parent, name)
	return 0
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var state string
	var ppid int
	if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &ppid); err != nil {
		t.Fatal(err)
	}
	return ppid
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("%v to process %d: %v", sig, pid, err)
	}
}

// signal sends a signal. When it returns, SIGSTOP has taken effect: one thread gets the signal, and
// all others run until that thread is scheduled.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	kill(p.t, p.cmd.Process.Pid, sig)
	if sig != syscall.SIGSTOP {
		return
	}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	if err != nil {
		p.t.Fatalf("wait until %v has stopped: %v", p.cmd.Args, err)
	}
}

// kill sends SIGKILL, and waits for the end.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.ends(-1)
}

func mark(t *testing.T) string { return fmt.Sprintf("GOLAUNCH_TEST_MARK=%d-%s", os.Getpid(), t.Name()) }

func TestTheGuardianIsKilled(t *testing.T) {
	begin := func(t *testing.T, script string) (p *process, marker string) {
		marker = mark(t)
		p = start(t, exec.Command(golaunch(t), "--procs-per-node", "2", "--env", marker, "--", "sh", "-c", script))
		p.line("up 0")
		p.line("up 1")
		return p, marker
	}
	const tree = "trap 'exit 0' USR1; echo up $RANK; setsid sleep 1000 & wait"
	t.Run("the job goes on", func(t *testing.T) {
		p, marker := begin(t, tree)
		kill(t, child(t, p.cmd.Process.Pid, "rankguard"), syscall.SIGKILL)
		p.line(`warning: the guardian \(pid [0-9]+\) ended.*; pid [0-9]+ takes over`)
		p.signal(syscall.SIGUSR1)
		p.ends(0)
		gone(t, marker)
	})
	t.Run("then golaunch", func(t *testing.T) {
		p, marker := begin(t, tree)
		kill(t, child(t, p.cmd.Process.Pid, "rankguard"), syscall.SIGKILL)
		p.line("takes over")
		p.kill()
		gone(t, marker)
	})
	t.Run("with golaunch", func(t *testing.T) {
		p, marker := begin(t, "echo up $RANK; exec sleep 1000")
		p.signal(syscall.SIGSTOP) // so that golaunch cannot start another guardian
		kill(t, child(t, p.cmd.Process.Pid, "rankguard"), syscall.SIGKILL)
		p.kill()
		gone(t, marker)
		start(t, exec.Command(golaunch(t), "--", "true")).ends(0) // the next golaunch removes the cgroup
	})
}

// TestANodeFallsSilent disconnects a node. The node must end its ranks by itself before they start
// elsewhere.
func TestANodeFallsSilent(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	marker := mark(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--lease", "2s", "--max-restarts", "1", "--env", marker, "--", "sh", "-c",
		"exec 9>" + t.TempDir() + "/rank$RANK; flock -n 9 || exit 9" + // an earlier attempt still lives
			"; echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000",
	}
	a, b := both(t, nodes, token, job...)
	a.line("attempt 0 rank 0")
	b.line("attempt 0 rank 1")
	nodes[1].Cut(t)
	c := start(t, join(t, nodes[2], "c", token, job...))
	a.line("b was lost: its agent was silent for 2.25s")
	c.line("attempt 1 rank 1")
	b.ends(125, "node b has not heard the coordinator at 10.77.0.2:29400 for 1.8s")
	a.ends(0)
	c.ends(0)
	gone(t, marker)
}

func TestAShortCutIsNotNoticed(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--lease", "4s", "--", "sh", "-c",
		"echo rank $RANK pid $$; sleep 6; echo rank $RANK ends as $$ in attempt $TORCHELASTIC_RESTART_COUNT",
	}
	a, b := both(t, nodes, token, job...)
	first, second := a.pid("rank 0 pid ([0-9]+)"), b.pid("rank 1 pid ([0-9]+)")
	nodes[1].Cut(t)
	<-time.After(time.Second)
	nodes[1].Join(t)
	a.ends(0, fmt.Sprintf("rank 0 ends as %d in attempt 0", first))
	b.ends(0, fmt.Sprintf("rank 1 ends as %d in attempt 0", second))
}

// TestAnAgentIsStopped: an agent is stopped for longer than its lease. The guardian ends its ranks,
// because they may run elsewhere when the agent continues.
func TestAnAgentIsStopped(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	marker := mark(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--lease", "2s", "--max-restarts", "0", "--env", marker, "--",
		"sh", "-c", "echo rank $RANK pid $$; sleep 1000",
	}
	a, b := both(t, nodes, token, job...)
	rank, err := pidfdOpen(b.pid("rank 1 pid ([0-9]+)"))
	if err != nil {
		t.Fatal(err)
	}
	b.signal(syscall.SIGSTOP)
	ended := rank.ended(patience)
	b.signal(syscall.SIGCONT)
	if !ended {
		t.Error("the rank outlives the lease")
	}
	b.ends(125, "node b has not heard the coordinator at 10.77.0.2:29400 for 1.8s")
	a.ends(125, "b was lost")
	gone(t, marker)
}

// TestAPause stops every process of a job for three leases, as on a machine that is moved. No node
// was replaced meanwhile, so everything continues.
func TestAPause(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	marker := mark(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--lease", "3s", "--max-restarts", "0", "--env", marker, "--",
		"sh", "-c", "echo up $RANK; sleep 16; echo done $RANK",
	}
	a, b := both(t, nodes, token, job...)
	a.line("up 0")
	b.line("up 1")
	all := marked(t, marker)
	for _, p := range []*process{a, b} {
		all = append(all, child(t, p.cmd.Process.Pid, "rankguard"), p.cmd.Process.Pid)
	}
	for _, pid := range all {
		kill(t, pid, syscall.SIGSTOP)
	}
	<-time.After(9 * time.Second)
	for _, pid := range all {
		kill(t, pid, syscall.SIGCONT)
	}
	a.ends(0, "done 0")
	b.ends(0, "done 1")
}

// TestStarvation makes all processes of a job share one CPU with eight processes that never sleep,
// for several of the shortest leases.
func TestStarvation(t *testing.T) { // runs alone: it would starve other tests
	nodes, token := cluster(t)
	shortestLease := 3 * time.Second // three processes have a ninth of a core, or less beside other tests
	if suite.All() {
		shortestLease = 10 * time.Second // for a build in which everything takes ten times as long
	}
	runtime.LockOSThread() // the parent of Pdeathsig is a thread
	defer runtime.UnlockOSThread()
	for range 8 {
		burner := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
		burner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := burner.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = burner.Process.Kill()
			_ = burner.Wait() // the signal ended it
		})
	}
	var all []*process
	for i, name := range []string{"a", "b", "c"} {
		cmd := join(t, nodes[i], name, token, "--nodes", "3", "--procs-per-node", "1", "--lease", shortestLease.String(), "--max-restarts", "0", "--",
			"sleep", fmt.Sprint(2*shortestLease.Seconds()))
		all = append(all, start(t, exec.Command("taskset", append([]string{"-c", "0"}, cmd.Args...)...)))
	}
	for _, p := range all {
		p.ends(0)
	}
}

func TestTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	marker := mark(t)
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--lease", "2s", "--env", marker, "--", "sh", "-c", "echo up $RANK; sleep 1000"}
	a, b := both(t, nodes, token, job...)
	b.line("up 1")
	a.kill()
	b.ends(125, "node b has not heard the coordinator at 10.77.0.2:29400 for 1.8s", "connection refused")
	gone(t, marker)
}

// TestUserSignals: user signals go to the ranks and stop nothing. A signal to the leader goes to
// the ranks of all nodes, a signal to another node to the ranks of that node.
func TestUserSignals(t *testing.T) {
	t.Parallel()
	const twice = `trap 'n=$((n+1)); echo told $RANK $n; [ $n = 1 ] || exit 0' USR1
echo up $RANK; while :; do sleep 1000 & wait $!; done`
	for _, where := range [][]string{{"--procs-per-node", "2"}, {"--simulate", "--nodes", "2", "--procs-per-node", "1"}} {
		p := start(t, exec.Command(golaunch(t), append(where, "--", "sh", "-c", twice)...))
		p.line("up 0")
		p.line("up 1")
		for n := 1; n <= 2; n++ {
			p.signal(syscall.SIGUSR1)
			p.line(fmt.Sprintf("told 0 %d", n))
			p.line(fmt.Sprintf("told 1 %d", n))
		}
		p.ends(0)
	}
	nodes, token := cluster(t)
	job := []string{"--nodes", "2", "--procs-per-node", "1", "--", "sh", "-c", twice}
	a, b := both(t, nodes, token, job...)
	a.line("up 0")
	b.line("up 1")
	b.signal(syscall.SIGUSR1)
	b.line("told 1 1")
	a.signal(syscall.SIGUSR1)
	b.line("told 1 2")
	a.line("told 0 1")
	a.signal(syscall.SIGUSR1)
	a.ends(0)
	b.ends(0)
}

// numbered is a program whose ranks print their pid, and print again when they are asked to end.
const numbered = `trap 'echo rank $RANK ends as $$; exit 0' USR1
echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE on $GOLAUNCH_NODE is $$; sleep 1000 & wait $!`

func TestASpareTakesOver(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "--simulate", "--nodes", "2", "--spares", "1", "--procs-per-node", "2", "--backoff", "0s",
		"--", "sh", "-c", numbered))
	p.line("attempt 0 rank 3 ")
	first := p.match("attempt 0 rank 0 of 4 on (node[0-2])")[1]
	rank2 := p.match("attempt 0 rank 2 of 4 on (node[0-2]) is ([0-9]+)")
	pid, err := strconv.Atoi(rank2[2])
	if err != nil {
		t.Fatal(err)
	}
	node := parent(t, pid)
	if parent(t, node) != p.cmd.Process.Pid {
		t.Fatalf("process %d is no simulated node", node)
	}
	kill(t, node, syscall.SIGKILL)
	p.line(rank2[1] + " was lost: its agent has died")
	spare := strings.Trim(strings.NewReplacer(first, "", rank2[1], "").Replace("node0 node1 node2"), " ")
	for rank, node := range []string{first, first, spare, spare} {
		p.line(fmt.Sprintf("attempt 1 rank %d of 4 on %s ", rank, node))
	}
	p.signal(syscall.SIGUSR1)
	p.ends(0)
}

func TestFewerNodesGoOn(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "--simulate", "--nodes", "2:3", "--procs-per-node", "1", "--backoff", "0s",
		"--", "sh", "-c", numbered))
	for rank := range 2 {
		p.line(fmt.Sprintf("attempt 0 rank %d of 3 on node%[1]d", rank))
	}
	kill(t, parent(t, p.pid("attempt 0 rank 2 of 3 on node2 is ([0-9]+)")), syscall.SIGKILL)
	p.line("attempt 1 rank 0 of 2 on node0")
	p.line("attempt 1 rank 1 of 2 on node1")
	p.signal(syscall.SIGUSR1)
	p.ends(0)
}

// TestOthersKeepRunning kills rank 3 of two nodes with two ranks each.
func TestOthersKeepRunning(t *testing.T) {
	t.Parallel()
	for restart, kept := range map[string]int{"node": 2, "rank": 3} {
		t.Run(restart, func(t *testing.T) {
			p := start(t, exec.Command(golaunch(t), "--restart", restart, "--simulate", "--nodes", "2", "--procs-per-node", "2",
				"--backoff", "0s", "--", "sh", "-c", numbered))
			pids := make([]int, 4)
			for rank := range pids {
				pids[rank] = p.pid(fmt.Sprintf("attempt 0 rank %d .* is ([0-9]+)", rank))
			}
			kill(t, pids[3], syscall.SIGKILL)
			for rank := kept; rank < 4; rank++ {
				pids[rank] = p.pid(fmt.Sprintf("attempt 1 rank %d .* is ([0-9]+)", rank))
			}
			p.signal(syscall.SIGUSR1)
			for rank, pid := range pids {
				p.line(fmt.Sprintf("rank %d ends as %d$", rank, pid))
			}
			p.ends(0)
		})
	}
}
