package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// torchftPython returns a Python with torchft and torch.
func torchftPython(t *testing.T) string {
	t.Helper()
	return suite.Optional(t, "GOLAUNCH_TEST_TORCHFT", "Python with torchft")
}

// replicas returns the command of replica groups that make a number of steps.
func replicas(t *testing.T, steps int, flags ...string) []string {
	t.Helper()
	script, err := filepath.Abs("testdata/torchft/replica.py")
	if err != nil {
		t.Fatal(err)
	}
	return append(flags, "--", torchftPython(t), script, strconv.Itoa(steps), "${replica_group}", "${replica_groups}")
}

// TestReplicaGroups kills a group. The other groups go on at once. The killed group comes back,
// with a store of its own, once they have gone on.
func TestReplicaGroups(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "again")
	release := gate(t, fifo)
	p := start(t, exec.Command(golaunch(t), replicas(t, 300, "--procs-per-node", "3", "--replica-groups", "3", "--min-groups", "2", "--backoff", "0s",
		"--env", "HOLD="+fifo)...))
	pid := p.pid(`group 1 pid (\d+) rank 0 of 1 store .* arguments \['1', '3'\]`)
	first := p.match(`group 1 pid \d+ rank 0 of 1 store (\S+)`)[1]
	p.line(`group 0 step \d+ quorum \d+ of 0,1,2`)
	without := regexp.MustCompile(`group 0 step \d+ quorum \d+ of 0,2 after`)
	text, _ := p.out.read()
	before := len(without.FindAllString(text, -1)) // the group may have been the last to come
	kill(t, pid, syscall.SIGKILL)
	gap := p.match(fmt.Sprintf(`(?s:(?:%s (\S+) s.*?){%d})`, without, before+1))[1]
	if seconds, err := strconv.ParseFloat(gap, 64); err != nil || seconds > 4 {
		t.Errorf("the others have a quorum after %s s; torchft's own lighthouse needs 5", gap)
	}
	release(1)
	p.ends(0, "job succeeded: 3 ranks exited 0 after 1 restart")
	text, _ = p.out.read()
	if !regexp.MustCompile(`(?s)(group 1 pid .*){2}group 1 step 0 quorum \d+ of 0,1,2`).MatchString(text) {
		t.Error("group 1 did not come back")
	}
	if again := regexp.MustCompile(`group 1 pid \d+ rank 0 of 1 store (\S+)`).FindAllStringSubmatch(text, -1); len(again) != 2 || again[1][1] == first {
		t.Errorf("group 1 has the store of its first start: %v", again)
	}
}

// TestTooFewReplicaGroups: the job can run without one group, but not without two.
func TestTooFewReplicaGroups(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), replicas(t, 1_000_000, "--procs-per-node", "3", "--replica-groups", "3", "--min-groups", "2", "--max-restarts", "0")...))
	pids := make([]int, 3)
	for i := range pids {
		pids[i] = p.pid(fmt.Sprintf(`group %d pid (\d+)`, i))
	}
	p.line(`group 0 step \d+ quorum \d+ of 0,1,2`)
	kill(t, pids[2], syscall.SIGKILL)
	p.line("group 2 does not start again: .*0 of 0 restarts used; the job needs 2 of its 3 groups")
	p.line(`group 0 step \d+ quorum \d+ of 0,1 `)
	kill(t, pids[0], syscall.SIGKILL)
	p.ends(137, "job failed: rank 0 on ")
}

// TestTheLighthouseOutlivesItsNode kills the coordinating node, and with it a group.
func TestTheLighthouseOutlivesItsNode(t *testing.T) {
	t.Parallel()
	nodes := nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4")
	token := tokenFile(t)
	var procs []*process
	for i, n := range nodes {
		procs = append(procs, start(t, join(t, n, fmt.Sprintf("n%d", i), token,
			replicas(t, 400, "--nodes", "3", "--procs-per-node", "1", "--replica-groups", "3", "--lease", "3s", "--max-restarts", "0", "--min-groups", "2")...)))
	}
	procs[0].line("can take over from n0")
	for i, p := range procs {
		p.line(fmt.Sprintf(`group %d step \d+ quorum \d+ of 0,1,2`, i))
	}
	procs[0].kill()
	var gaps []string
	for i, p := range procs[1:] {
		gaps = append(gaps, p.match(fmt.Sprintf(`group %d step \d+ quorum \d+ of 1,2 after (\S+) s`, i+1))[1])
	}
	t.Logf("a quorum %v s after the last one before the leader's death", gaps)
	for _, p := range procs[1:] {
		p.ends(0, "has made 4")
	}
}

// TestTrainWithTorchft trains with torchft's Manager and gloo, and kills a group on the way.
func TestTrainWithTorchft(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../examples/torchft/train.py")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(golaunch(t), "--procs-per-node", "2", "--replica-groups", "2", "--backoff", "0s", "--prefix",
		"--", torchftPython(t), script, "250", "0.2")) // 50 s, in which the group must be back
	p.line("step [0-9]+ with 2 groups")
	kill(t, p.pid(`\[r1 \S+\] pid (\d+)`), syscall.SIGKILL)
	p.line(`\[r0 \S+\] step \d+ with 1 groups`)
	p.line(`\[r1 \S+\] step \d+ with 2 groups`)
	p.ends(0, "job succeeded: 2 ranks exited 0 after 1 restart")
	text, _ := p.out.read()
	sums := regexp.MustCompile(`weights (\S+) after 250 steps`).FindAllStringSubmatch(text, -1)
	if len(sums) != 2 || !slices.Equal(sums[0], sums[1]) {
		t.Errorf("the groups have the weights %v", sums)
	}
}

// chaos is a job with a replica group on each of several nodes, and with random faults.
type chaos struct {
	t     *testing.T
	nodes []nettest.Node
	procs []*process
	start func(i int) *process
	// read is how much of the output of each process longest has read.
	read map[*process]int
}

func newChaos(t *testing.T, nodes int, steps int) *chaos {
	var addrs []string
	for i := range nodes {
		addrs = append(addrs, fmt.Sprintf("10.77.0.%d", i+2))
	}
	c := &chaos{t: t, nodes: nettest.Nodes(t, addrs...), read: map[*process]int{}}
	token := tokenFile(t)
	job := replicas(t, steps, "--nodes", strconv.Itoa(nodes), "--procs-per-node", "1", "--replica-groups", strconv.Itoa(nodes), "--lease", "3s",
		"--max-restarts", "1000", "--exclude-after", "0", "--min-groups", strconv.Itoa(nodes/2))
	c.start = func(i int) *process { return start(t, join(t, c.nodes[i], fmt.Sprintf("n%d", i), token, job...)) }
	for i := range nodes {
		c.procs = append(c.procs, c.start(i))
	}
	return c
}

// steps returns the steps that the groups have reached.
func (c *chaos) steps() (most int) {
	for _, p := range c.procs {
		text, _ := p.out.read()
		for _, m := range regexp.MustCompile(`group \d+ is at step (\d+)`).FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1])
			most = max(most, n)
		}
	}
	return most
}

// revive starts the golaunch of a node again if it has ended, as Kubernetes does. With a lease of
// 3 s, a cut of 1 s may cost a node its lease.
func (c *chaos) revive() {
	for i, p := range c.procs {
		select {
		case <-p.done:
			p.done <- nil
			text, _ := p.out.read()
			c.t.Logf("n%d has ended: %s", i, text[strings.LastIndex(text[:max(0, len(text)-1)], "\n")+1:])
			c.procs[i] = c.start(i)
		default:
		}
	}
}

// rank returns the process of the rank that was started last on a node.
func (c *chaos) rank(i int) int {
	text, _ := c.procs[i].out.read()
	all := regexp.MustCompile(`group \d+ pid (\d+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(all[len(all)-1][1])
	return pid
}

var (
	chaosFor    = flag.Duration("chaos", 0, "how long TestReplicaChaos injects faults; 0 is 3m in make test-all")
	chaosEach   = flag.Duration("chaos-each", 15*time.Second, "the time between two faults of TestReplicaChaos")
	chaosGroups = flag.Int("chaos-groups", 4, "how many replica groups TestReplicaChaos has")
	chaosShare  = flag.Float64("chaos-share", 70, "the percentage of the undisturbed steps that TestReplicaChaos wants")
)

// TestReplicaChaos kills and stops ranks, cuts cables and kills the coordinator, again and again.
// It compares the steps that groups reach meanwhile with the steps that they reach undisturbed,
// before and after. By default there is a fault every 15 s. A stopped group then costs the others
// 2 s, and a leader 1 s.
func TestReplicaChaos(t *testing.T) {
	if *chaosFor == 0 {
		suite.LeftToAll(t, "it takes minutes")
		*chaosFor = 3 * time.Minute
	}
	rng := rand.New(rand.NewPCG(1, 1))
	c := newChaos(t, *chaosGroups, 1_000_000)
	c.procs[0].line("can take over from n0")
	for i, p := range c.procs {
		p.line(fmt.Sprintf(`group %d step \d+ quorum \d+ of %s `, i, c.all()))
	}
	const calm = 20 * time.Second
	pass := func(d time.Duration) (steps int) {
		before := c.steps()
		<-time.After(d)
		return c.steps() - before
	}
	undisturbed := pass(calm)
	leader, disturbed := 0, 0
	events := int(*chaosFor / *chaosEach)
	for event := range events {
		c.revive()
		i := rng.IntN(len(c.nodes))
		what := []string{"kill", "stop", "cut", "leader"}[event%4]
		began := time.Now()
		switch what {
		case "kill":
			_ = syscall.Kill(c.rank(i), syscall.SIGKILL)
		case "stop":
			pid := c.rank(i)
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			time.AfterFunc(8*time.Second, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		case "cut":
			c.nodes[i].Cut(t)
			time.AfterFunc(time.Second, func() { c.nodes[i].Join(t) })
		case "leader":
			i = leader
			c.procs[i].kill()
			leader = (leader + 1) % len(c.nodes)
		}
		steps := pass(*chaosEach)
		disturbed += steps
		if what == "leader" {
			c.procs[i] = c.start(i)
		}
		t.Logf("%s at n%d: %d steps in %v, the longest wait of a group for a quorum %v", what, i, steps, time.Since(began).Round(time.Millisecond), c.longest())
	}
	undisturbed += pass(calm)
	share := 100 * float64(disturbed) / float64(undisturbed) / (float64(events) * chaosEach.Seconds() / (2 * calm.Seconds()))
	t.Logf("%d steps in %v, %d undisturbed in %v: %.1f %%", disturbed, time.Duration(events)**chaosEach, undisturbed, 2*calm, share)
	if share < *chaosShare {
		t.Errorf("only %.1f %% of the undisturbed steps, want %.1f %%", share, *chaosShare)
	}
}

// all names the members of a quorum of all groups.
func (c *chaos) all() string {
	names := make([]string, len(c.procs))
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return strings.Join(names, ",")
}

// longest returns the longest time between two quorums of a group since the last call, for groups
// that were not started anew.
func (c *chaos) longest() (longest time.Duration) {
	for _, p := range c.procs {
		text, _ := p.out.read()
		for _, m := range regexp.MustCompile(`quorum \d+ of \S+ after (\S+) s`).FindAllStringSubmatch(text[min(c.read[p], len(text)):], -1) {
			seconds, _ := strconv.ParseFloat(m[1], 64)
			longest = max(longest, time.Duration(seconds*float64(time.Second)))
		}
		c.read[p] = len(text)
	}
	return longest
}
