package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/internal/testkit/topotest"
	"github.com/golaunch/golaunch/rankenv"
)

// ask makes each rank write where NCCL's RAS service must listen, and the network's presets.
const ask = `echo $RANK ${NCCL_RAS_ADDR-none} ${NCCL_NET-none} >>where`

func TestEveryRankHasItsOwnRAS(t *testing.T) {
	w := obeyingOn(t, node(topotest.Machine{Nodes: 1, CoresPerNode: 1, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 0}}), ask)
	w.order(withGPUs(0, 0, 1))
	w.quiet()
	s := w.wrote(t)
	fields := strings.Fields(strings.ReplaceAll(s, ",", ""))
	if len(fields) != 6 || fields[1] == fields[4] || !strings.HasSuffix(fields[1], ":28028") || !strings.HasSuffix(fields[4], ":28028") {
		t.Error(s)
	}
}

func TestTheUsersRASWins(t *testing.T) {
	w := obeyingOn(t, node(topotest.Machine{Nodes: 1, CoresPerNode: 1, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 0}}), ask)
	task := &w.jobs["test"].work.Task
	task.Env = rankenv.Merge(rankenv.Layers{User: []rankenv.Var{{Name: "NCCL_RAS_ADDR", Value: "localhost:7", Source: rankenv.User}}})
	w.order(withGPUs(0, 0, 1))
	w.quiet()
	if s := w.wrote(t); s != "0 localhost:7 none, 1 localhost:7 none" {
		t.Error(s)
	}
	if got := ncclprobe.AddressIn(task.Env.Environ(rankenv.Facts{RASAddr: "127.1.1.1:28028"})); got != "localhost:7" {
		t.Errorf("the coordinator gets %s", got)
	}
}

// TestPresetsKnowTheNetwork checks that a start has the network that the nodes agreed on, and that
// a CPU rank has no NCCL to ask.
func TestPresetsKnowTheNetwork(t *testing.T) {
	w := obeying(t, ask)
	var asked []string
	w.jobs["test"].work.Task.Presets = func(network string) []rankenv.Var {
		asked = append(asked, network)
		return []rankenv.Var{{Name: "NCCL_NET", Value: network, Source: rankenv.Preset}}
	}
	o := startOf(0)
	o.World.Network = "tcp"
	w.order(o)
	w.quiet()
	if s := w.wrote(t); s != "0 none tcp, 1 none tcp" || !slices.Equal(asked, []string{"tcp"}) {
		t.Errorf("%s, asked %q", s, asked)
	}
}
