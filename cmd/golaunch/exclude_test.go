package main

import (
	"strings"
	"testing"
	"time"
)

// A node whose GPU fails is replaced by a free node. Later jobs do not use the failed node either,
// even after the coordinator was killed.
func TestANodeThatFailsIsExchanged(t *testing.T) {
	t.Parallel()
	h, coordinator, _, _ := up(t, 2)
	fails := "echo on $GOLAUNCH_NODE; [ $GOLAUNCH_NODE = n10 ] || { echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1; }; "
	h.do("run", "--detach", "--job-id", "night", "--backoff", "0s", "--gpus-per-node", "1", "--exclude-after", "2/10m", "--", "sh", "-c", fails+hung)
	h.start(0, "logs", "-f", "night").line("on n10")

	check := func() {
		t.Helper()
		excluded := h.status().node(t, "n9").Excluded
		if len(excluded) != 2 || excluded[0].Job != "" || excluded[0].Why != "ecc-uncorrectable in job night" ||
			excluded[1].Job != "night" || excluded[1].Why != "ecc-uncorrectable" || time.Until(excluded[0].Until) > 10*time.Minute {
			t.Errorf("n9 is excluded: %+v", excluded)
		}
		if out := h.do("status"); !strings.Contains(out, "\nn9 is passed over by new jobs until ") {
			t.Errorf("status says %s", out)
		}
	}
	check()
	coordinator.kill()
	h.coordinate().line("nodes that have .* to come back: 2")
	h.start(0, "logs", "-f", "night").line("up 0") // n10 is back
	check()

	where := []string{"--gpus-per-node", "1", "--", "sh", "-c", "echo $GOLAUNCH_NODE"}
	h.start(0, where...).ends(0, "n10")
	h.detach("second", 1, "--gpus-per-node", "1", "--", "sh", "-c", hung)
	h.start(0, where...).ends(0, "n9")
}

// A job that got fewer nodes than it can use starts again with a later node, when its ranks are
// ready.
func TestAJobGrows(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate()
	h.join(1, "n10", 0)
	ready := `echo rank $RANK of $WORLD_SIZE; [ $WORLD_SIZE = 2 ] && exit; while [ ! -e $GOLAUNCH_NOTICE_FILE ]; do sleep 0.05; done
		cat $GOLAUNCH_NOTICE_FILE; touch $GOLAUNCH_NOTICE_FILE.ready; sleep 1000`
	a := h.start(0, "--nodes", "1:2", "--procs-per-node", "1", "--grow-after", "1ms", "--drain-time", "1m", "--", "sh", "-c", ready)
	a.line("rank 0 of 1")
	h.join(2, "n9", 0)
	a.line("the job grows from 1 to 2 nodes")
	a.ends(0, "rank 0 of 2", "rank 1 of 2", "ranks exited 0")
}
