package nccl_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
	"pgregory.net/rapid"
)

// shared are the variables that must be the same on every node. Otherwise NCCL's processes do not
// understand each other.
var shared = []string{"NCCL_NET", "NCCL_PROTO", "FI_PROVIDER", "NCCL_BUFFSIZE"}

func TestEveryNodeGetsTheSame(t *testing.T) {
	all := machines()
	names := rapid.SampledFrom(slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if !yield(name) {
				return
			}
		}
	}))
	rapid.Check(t, func(t *rapid.T) {
		var nodes []nccl.Facts
		for _, name := range rapid.SliceOfN(names, 1, 6).Draw(t, "nodes") {
			f, _ := detect(all[name], "10.0.0.5")
			nodes = append(nodes, f)
		}
		preset := rapid.SampledFrom([]string{"auto", "efa", "efa-classic", "ib", "roce", "tcp", "none"}).Draw(t, "preset")
		vars, why, err := plan(preset, nodes)
		if err != nil || len(vars) != len(nodes) {
			t.Fatal(vars, err)
		}
		for i, own := range vars {
			if got, want := only(own), only(vars[0]); got != want {
				t.Errorf("node %d gets %s, node 0 %s", i, got, want)
			}
			differ := nodes[i].Fabric != nodes[0].Fabric
			if differ && why == "" {
				t.Error("no word of different fabrics")
			}
			if preset == "auto" && differ && strings.Contains(fmt.Sprint(own), "FI_") {
				t.Errorf("node %d gets EFA's variables, but not all have EFA: %v", i, own)
			}
		}
	})
}

// plan returns the variables of every node of a job, in the order of nodes. If the nodes have no
// common fabric, why says why.
func plan(preset string, nodes []nccl.Facts) (vars [][]rankenv.Var, why string, err error) {
	labelled := make([]placement.Node, len(nodes))
	for i, f := range nodes {
		labelled[i] = placement.Node{Name: fmt.Sprint("node ", i), Labels: map[string]string{nccl.Label: f.Own().String()}}
	}
	text, why := nccl.Agree(labelled)
	agreed, _ := nccl.ParseAgreement(text)
	vars = make([][]rankenv.Var, len(nodes))
	for i, f := range nodes {
		if vars[i], err = nccl.Vars(preset, agreed, f); err != nil {
			return nil, "", err
		}
	}
	return vars, why, nil
}

// only returns those variables that are in shared.
func only(vars []rankenv.Var) string {
	var text []string
	for _, v := range vars {
		if slices.Contains(shared, v.Name) {
			text = append(text, v.Name+"="+v.Value)
		}
	}
	return strings.Join(text, " ")
}

func TestOneNodeWithoutTheFabric(t *testing.T) {
	nodes := make([]nccl.Facts, 5)
	for i := range nodes {
		nodes[i], _ = detect(p5(), "10.0.0.5")
	}
	nodes[3], _ = detect(laptop(), "10.0.0.5")
	vars, why, err := plan("auto", nodes)
	const want = "the nodes have no fabric in common, so that auto presets take tcp: 4 of 5 have efa, node 3 tcp; golaunch env says why on each"
	if err != nil || why != want {
		t.Errorf("%q, %v; want %q", why, err, want)
	}
	for i, own := range vars {
		if len(own) == 0 || own[0].Name != "NCCL_NET" || own[0].Value != "Socket" {
			t.Errorf("node %d: %v", i, own)
		}
	}
}

// TestTheOldestVersionDecides checks that settings for old software on one node do not harm newer
// software.
func TestTheOldestVersionDecides(t *testing.T) {
	older, newer, unknown := nccl.Facts{Fabric: nccl.EFA, Devices: []string{"rdmap1s0"}}, nccl.Facts{Fabric: nccl.EFA}, nccl.Facts{Fabric: nccl.EFA}
	older.Versions = nccl.Versions{Libfabric: "1.17.1", Plugin: "1.6.0-aws", Kernel: "6.1.0", Machine: "p4de.24xlarge"}
	newer.Versions = nccl.Versions{Libfabric: "1.22.0amzn4.0", Plugin: "1.13.2", Kernel: "5.10.1", Machine: "p5.48xlarge"}
	vars, why, err := plan("auto", []nccl.Facts{newer, older, unknown})
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	for i, want := range []string{
		"FI_EFA_USE_HUGE_PAGE=0 FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1", "FI_EFA_USE_HUGE_PAGE=0 FI_EFA_USE_DEVICE_RDMA=1",
		"FI_EFA_USE_HUGE_PAGE=0",
	} {
		if got := strings.Join(pairs(t, vars[i]), " "); got != want {
			t.Errorf("node %d: %s, want %s", i, got, want)
		}
	}
	if !strings.Contains(fmt.Sprint(vars[0]), "libfabric 1.17.1 is before 1.18") {
		t.Error(vars[0])
	}
}

func TestAgreement(t *testing.T) {
	a := nccl.Agreement{Fabric: nccl.EFA, RDMA: true, Libfabric: "1.22.0", Plugin: "1.13.2"}
	if text := a.String(); text != "efa rdma libfabric=1.22.0 plugin=1.13.2" {
		t.Error(text)
	}
	if got, ok := nccl.ParseAgreement("efa newer=1 rdma libfabric=1.22.0 plugin=1.13.2 words"); !ok || got != a {
		t.Error(got, ok)
	}
	for _, text := range []string{"", " ", "rdma", "EFA", "efa " + strings.Repeat("x", 256)} {
		if got, ok := nccl.ParseAgreement(text); ok {
			t.Errorf("%q is %+v", text, got)
		}
	}
	if agreed, why := nccl.Agree([]placement.Node{{Name: "n1"}, {Name: "n2", Labels: map[string]string{nccl.Label: "?"}}}); agreed+why != "" {
		t.Errorf("nothing is known, and they agree on %q, %q", agreed, why)
	}
}

func FuzzParseAgreement(f *testing.F) {
	f.Add("efa rdma libfabric=1.22.0 plugin=1.13.2")
	f.Add("tcp libfabric=1..2 plugin=999999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := nccl.ParseAgreement(text)
		if !ok {
			return
		}
		if again, ok := nccl.ParseAgreement(a.String()); !ok || again != a {
			t.Errorf("%q is %+v, and %q is %+v", text, a, a.String(), again)
		}
		if _, err := nccl.Vars("auto", a, nccl.Facts{}); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		nodes := make([]nccl.Facts, n)
		for i := range nodes {
			nodes[i], _ = detect(p4d(), "10.0.0.5")
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := plan("auto", nodes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
