package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// counting is a rank that counts until a file named end exists; then rank 1 fails.
const counting = `echo up $RANK; echo rank $RANK is $$; i=0; while [ ! -e end ]; do i=$((i+1)); echo rank $RANK counts $i; sleep 0.02; done
echo rank $RANK ends as $$ at $i; [ $RANK != 1 ] || exit 5; sleep 1000`

// counted checks that a rank has counted without a gap, in one process, and returns the process.
func counted(t *testing.T, text string, rank int) (pid string) {
	t.Helper()
	is := regexp.MustCompile(fmt.Sprintf(`rank %d is (\d+)\n`, rank)).FindAllStringSubmatch(text, -1)
	counts := regexp.MustCompile(fmt.Sprintf(`rank %d counts (\d+)\n`, rank)).FindAllStringSubmatch(text, -1)
	for i, m := range counts {
		if m[1] != fmt.Sprint(i+1) {
			t.Fatalf("rank %d counts %s after %d", rank, m[1], i)
		}
	}
	if len(is) != 1 || rank == 1 && !strings.Contains(text, fmt.Sprintf("rank 1 ends as %s at %d\n", is[0][1], len(counts))) {
		t.Fatalf("rank %d is %q and counts to %d:\n%s", rank, is, len(counts), text)
	}
	return is[0][1]
}

// log is the file that the coordinator keeps.
func (h *heads) log() string { return filepath.Join(h.home, ".golaunch", h.at, "log") }

// TestTheCoordinatorIsStartedAgain: the coordinator is started again while ranks count, with a log
// as after kill -9, a full disk or a power failure. No rank notices, the attached client misses
// nothing, and the job ends with its own code.
func TestTheCoordinatorIsStartedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(log []byte) []byte
		says   string
	}{
		"whole":   {func(j []byte) []byte { return j }, "jobs taken over: 2; nodes that have 15.25s to come back: 2"},
		"torn":    {func(j []byte) []byte { return j[:len(j)-30] }, "bytes of the coordinator's log were incomplete and are cut off; the agents report what is missing"},
		"garbled": {func(j []byte) []byte { return append(j, "\xff\x00{]\n\n"...) }, "the last 6 bytes of the coordinator's log were incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, coordinator, _, _ := up(t, 2)
			marker := mark(t)
			job := []string{
				"--nodes", "2", "--gpus-per-node", "1", "--max-restarts", "0", "--grace", "1s", "--env", marker, "--", "sh", "-c", counting,
			}
			h.detach("b", 2, job...)
			attached := h.start(1, append([]string{"--coordinator", h.at, "--job-id", "a"}, job...)...)
			attached.line("rank 1 counts 9$")
			attached.line("rank 0 counts 9$")
			attached.line("attempt 0 runs") // the log ends with reports, which agents repeat, and not with what has started ranks
			coordinator.kill()
			text0, err := os.ReadFile(h.log())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.log(), c.damage(text0), 0o600); err != nil {
				t.Fatal(err)
			}
			h.coordinate().line(c.says)
			seen, _ := attached.out.read()
			n := strings.Count(seen, "rank 0 counts")
			attached.line(fmt.Sprintf("rank 0 counts %d$", n+20))
			h.touch("end")
			attached.ends(5, "rank 1 on n10")
			text, _ := attached.out.read()
			detached, out := h.start(0, "logs", "-f", "b").wait()
			if detached != 0 {
				t.Errorf("logs -f: exit code %d", detached)
			}
			pids := []string{counted(t, text, 0), counted(t, text, 1), counted(t, out, 0), counted(t, out, 1)}
			if slices.Sort(pids); len(slices.Compact(pids)) != 4 {
				t.Errorf("the ranks are %v", pids)
			}
			for _, id := range []string{"a", "b"} {
				if j := h.status().job(t, id); j.Result == nil || j.Result.Code != 5 || j.Restarts != 0 {
					t.Errorf("%s: %+v", id, j)
				}
			}
			gone(t, marker)
		})
	}
}

// TestADamagedLog: a damaged log is not read as if it were whole, and is not changed: a person may
// repair it, or decide that the jobs end.
func TestADamagedLog(t *testing.T) {
	t.Parallel()
	h, coordinator, _, _ := up(t, 1)
	marker := mark(t)
	h.detach("lost", 1, "--gpus-per-node", "1", "--grace", "1s", "--env", marker, "--", "sh", "-c", hung)
	coordinator.kill()
	text, err := os.ReadFile(h.log())
	if err != nil {
		t.Fatal(err)
	}
	copy(text[40:], bytes.Repeat([]byte{0}, 20))
	if err := os.WriteFile(h.log(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(0, "coordinator", "--listen", h.at).ends(125, "cannot read the coordinator's log", "it is damaged")
	if kept, err := os.ReadFile(h.log()); err != nil || !bytes.Equal(kept, text) {
		t.Errorf("the log was changed: %v", err)
	}
	if err := os.Rename(h.log(), h.log()+".damaged"); err != nil {
		t.Fatal(err)
	}
	h.coordinate()
	gone(t, marker)
	h.start(0, "stop", "lost").ends(2, `there is no job "lost" here`)
}

// TestAWaitingClientSeesTheCoordinatorReturn: the coordinator returns with an unchanged queue.
func TestAWaitingClientSeesTheCoordinatorReturn(t *testing.T) {
	t.Parallel()
	h, coordinator, _, _ := up(t, 1)
	h.detach("all", 2, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", hung)
	var waiting []*process
	for _, id := range []string{"first", "second"} {
		p := h.start(0, "--job-id", id, "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", "echo "+id+" $RANK")
		p.line("cannot place the job yet|waiting behind job first")
		waiting = append(waiting, p)
	}
	coordinator.kill()
	h.coordinate().line("jobs taken over: 3")
	if j := h.status().job(t, "second"); j.Result != nil {
		t.Errorf("second: %+v", j)
	}
	h.do("stop", "all")
	for i, p := range waiting {
		p.ends(0, []string{"first 1", "second 1"}[i])
	}
	if s := h.status(); s.job(t, "second").Finished.Before(s.job(t, "first").Finished) {
		t.Error("second was before first")
	}
}

// TestTheCoordinatorReturnsWithoutItsLog: a client that waits for its job does not take this for a
// usage error.
func TestTheCoordinatorReturnsWithoutItsLog(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	coordinator := h.coordinate("--state-dir", t.TempDir())
	h.join(1, "n10", 2)
	var attached []*process
	for i, more := range [][]string{nil, {"--exit-codes", "infrastructure=77"}} {
		p := h.start(0, append(more, "--job-id", fmt.Sprint("j", i), "--gpus-per-node", "1", "--", "sh", "-c", hung)...)
		p.line("up 0")
		attached = append(attached, p)
	}
	coordinator.kill()
	h.coordinate("--state-dir", t.TempDir())
	for i, p := range attached {
		p.ends([]int{125, 77}[i], "the coordinator was started again without its log and does not know the job: ", "start it with its old --state-dir")
	}
}

// TestAPreemptionGoesOn kills the coordinator when half of the ranks of a preempted job have saved.
// The next coordinator waits for the other half. No rank of either job finds its GPU locked by another
// one. The preempted job then goes on from its checkpoint.
func TestAPreemptionGoesOn(t *testing.T) {
	t.Parallel()
	h, coordinator, _, _ := up(t, 2)
	save := gate(t, filepath.Join(h.dir, "save"))
	const alone = "exec 9>gpu-$GOLAUNCH_NODE-$LOCAL_RANK; flock -n 9 || exit 9; "
	h.detach("night", 4, "--nodes", "2", "--gpus-per-node", "2", "--priority", "batch", "--drain-time", "10m", "--notice-signal", "USR1",
		"--", "sh", "-c", alone+`trap 'echo saves $RANK; read line <save; echo 7 >step$RANK; echo saved $RANK; touch $GOLAUNCH_NOTICE_FILE.ready' USR1
echo up $RANK
[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { echo $RANK goes on at step $(cat step$RANK); exit; }
while :; do sleep 1000 & wait; done`)
	night := h.start(0, "logs", "-f", "night")
	urgent := h.start(0, "--job-id", "urgent", "--nodes", "2", "--gpus-per-node", "2", "--priority", "production", "--max-restarts", "0",
		"--", "sh", "-c", alone+"echo urgent $RANK of $WORLD_SIZE")
	for rank := range 4 {
		night.line(fmt.Sprintf("saves %d", rank))
	}
	save(2)
	night.line(`saved \d(.|\n)*saved \d`)
	coordinator.kill()
	h.coordinate().line("jobs taken over: 2")
	if j := h.status().job(t, "night"); j.Phase != "running" || j.Attempt != 0 {
		t.Errorf("when half of its ranks have saved: %+v", j)
	}
	save(2)
	urgent.ends(0, "urgent 0 of 4", "urgent 3 of 4")
	for rank := range 4 {
		night.line(fmt.Sprintf("%d goes on at step 7", rank))
	}
	night.ends(0)
	if j := h.status().job(t, "night"); j.Result == nil || j.Result.Code != 0 || j.Attempt != 1 || j.Restarts != 0 {
		t.Errorf("the batch job: %+v", j)
	}
}

// TestAnAgentLeavesWithoutACoordinator: an agent leaves on SIGTERM while it tries to join again.
func TestAnAgentLeavesWithoutACoordinator(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	coordinator := h.coordinate("--lease", "1s")
	agents := []*process{h.join(1, "n10", 1), h.adopting(2, "n9")}
	coordinator.kill()
	for _, n := range agents {
		n.line("it joins again")
		n.signal(syscall.SIGTERM)
		n.ends(143)
	}
}

// TestTheCoordinatorStaysAway: the coordinator is gone for longer than the lease, and no rank
// outlives the lease. Agents join a later coordinator, and a detached job goes on there.
func TestTheCoordinatorStaysAway(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	coordinator := h.coordinate("--lease", "1s")
	n10, n9 := h.join(1, "n10", 1), h.join(2, "n9", 2)
	marker := mark(t)
	job := []string{
		"--gpus-per-node", "1", "--env", marker, "--", "sh", "-c",
		"echo up $RANK in attempt $TORCHELASTIC_RESTART_COUNT; [ -e end ] || exec sleep 1000",
	}
	h.detach("a", 2, append([]string{"--nodes", "2"}, job...)...)
	attached := h.start(0, job...)
	attached.line("up 0")
	coordinator.kill()
	n10.line("its ranks are dead, and it joins again")
	n9.line("its ranks are dead, and it joins again")
	gone(t, marker)
	attached.ends(125, "lost track of job ")
	h.touch("end")
	h.coordinate("--lease", "1s").line("jobs taken over: 2")
	follow := h.start(0, "logs", "-f", "a")
	follow.line("up 0 in attempt 1")
	follow.line("up 1 in attempt 1")
}
