package launcher

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

func named(vars []rankenv.Var) (names []string) {
	for _, v := range vars {
		names = append(names, v.Name+"="+v.Value)
	}
	return names
}

// TestPresetsFollowTheAgreement: on any machine, the preset auto depends only on what all nodes
// have in common. No interface of this machine has the node's address, so no variable depends on
// this machine.
func TestPresetsFollowTheAgreement(t *testing.T) {
	j := Job{Ranks: Ranks{Preset: "auto"}, Resources: Resources{MinNodes: 2, MaxNodes: 2}}
	presets, err := j.presets(netip.MustParseAddr("203.0.113.1"))
	if err != nil {
		t.Fatal(err)
	}
	for network, want := range map[string][]string{
		"tcp rdma":            {"NCCL_NET=Socket"},
		"tcp":                 nil,
		"efa rdma":            {"FI_EFA_USE_HUGE_PAGE=0"},
		"efa rdma plugin=1.5": {"FI_EFA_USE_HUGE_PAGE=0", "FI_PROVIDER=efa", "NCCL_PROTO=simple"},
	} {
		if got := named(presets(network)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", network, got, want)
		}
	}
}

func TestPresetsOfAJobOnOneNode(t *testing.T) {
	alone := Job{Ranks: Ranks{Preset: "auto"}, Resources: Resources{MinNodes: 1, MaxNodes: 1}}
	simulated := Job{Ranks: Ranks{Preset: "auto"}, Resources: Resources{MinNodes: 2, MaxNodes: 2}}
	for addr, j := range map[string]Job{"203.0.113.1": alone, "127.0.0.2": simulated} {
		presets, err := j.presets(netip.MustParseAddr(addr))
		if err != nil || presets("tcp rdma") != nil {
			t.Errorf("%s: %v, %v", addr, presets("tcp rdma"), err)
		}
	}
}

func TestNodesReportTheirNetwork(t *testing.T) {
	node := placement.Node{Name: "n1"}
	if err := machine.LabelNetwork(&node); err != nil {
		t.Fatal(err)
	}
	if a, ok := nccl.ParseAgreement(node.Labels[nccl.Label]); !ok || a.Fabric == "" {
		t.Errorf("%q", node.Labels)
	}
}

func TestSurvey(t *testing.T) {
	s, err := Job{
		Command: []string{"true"}, Network: Network{Name: "here", Address: "127.0.0.1", Scheduler: noScheduler}, Ranks: Ranks{Preset: "tcp"},
		Resources: Resources{MinNodes: 3, MaxNodes: 3, PerNode: []int{2}}, Env: []string{"GLOO_SOCKET_IFNAME=mine"},
	}.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := named(s.Env.Vars)
	for _, want := range []string{
		"RANK=0", "WORLD_SIZE=6", "NNODES=3", "GOLAUNCH_NODE=here", "MASTER_ADDR=127.0.0.1", "NCCL_SOCKET_IFNAME==lo", "GLOO_SOCKET_IFNAME=mine",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if s.Network.Interface != "lo" || s.Network.Versions.Kernel == "" || s.Why == "" {
		t.Errorf("%+v because %s", s.Network, s.Why)
	}
}
