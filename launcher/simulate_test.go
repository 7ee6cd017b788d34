package launcher_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// TestSimulate runs a job on simulated nodes, for each of which golaunch starts this test binary
// again.
func TestSimulate(t *testing.T) {
	job, out, words := marked(t, 2, `echo rank $RANK is $LOCAL_RANK on $NODE_RANK, sees $CUDA_VISIBLE_DEVICES, master $MASTER_ADDR`)
	job.Resources.Simulate, job.Resources.GPU = true, true
	job.Resources.MinNodes, job.Resources.MaxNodes, job.Resources.PerNode = 2, 2, []int{1, 2}
	result, err := launcher.Run(t.Context(), job)
	if err != nil || result.Code != 0 || result.Attempts != 1 {
		t.Fatalf("%+v (%v)\n%s", result, err, words)
	}
	var want []string
	for rank, place := range []string{"0 on 0, sees 0", "0 on 1, sees 0,1", "1 on 1, sees 0,1"} {
		want = append(want, fmt.Sprintf("[r%d node%d] rank %d is %s, master 127.0.0.1", rank, min(rank, 1), rank, place))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if slices.Sort(lines); !slices.Equal(lines, want) {
		t.Errorf("printed %q, want %q", lines, want)
	}
}

// TestSimulatedLoss kills a node: a spare replaces the node, and gets its node rank.
func TestSimulatedLoss(t *testing.T) {
	job, out, words := marked(t, 1, `echo attempt $GOLAUNCH_ATTEMPT rank $RANK on $GOLAUNCH_NODE
[ $GOLAUNCH_ATTEMPT = 1 ] && exit 0; [ $RANK = 1 ] && kill -9 $PPID; exec sleep 1000`)
	job.Resources.Simulate, job.Resources.Spares, job.Restarts.Max = true, 1, 1
	job.Resources.MinNodes, job.Resources.MaxNodes = 2, 2
	result, err := launcher.Run(t.Context(), job)
	if err != nil || result.Code != 0 || result.Restarts != 1 {
		t.Fatalf("%+v (%v)\n%s", result, err, words)
	}
	lost := regexp.MustCompile(`golaunch: (node\d) was lost: its agent has died`).FindStringSubmatch(words.String())
	again := regexp.MustCompile(`attempt 1 rank 1 on (node\d)\n`).FindStringSubmatch(out.String())
	if lost == nil || again == nil || lost[1] == again[1] {
		t.Errorf("rank 1 began again at %q after the loss of %q:\n%s%s", again, lost, out, words)
	}
}

func TestSimulatedCancel(t *testing.T) {
	job, out, _ := marked(t, 1, `trap '' TERM; echo up $RANK; setsid sleep 1000 & sleep 1000`)
	job.Resources.Simulate, job.Stopping.Grace = true, -1
	job.Resources.MinNodes, job.Resources.MaxNodes = 3, 3
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for rank := range 3 {
			out.await(t, fmt.Sprint("up ", rank))
		}
		cancel()
	}()
	if result, err := launcher.Run(ctx, job); err != nil || result.Code != 130 {
		t.Errorf("code %d (%v), want 130", result.Code, err)
	}
}
