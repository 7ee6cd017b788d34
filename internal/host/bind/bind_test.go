package bind_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/internal/testkit/topotest"
)

// read returns a machine's topology with all levels that policies need.
func read(m topotest.Machine) topology.Topology {
	t, _ := topology.Read(m.Sys(), m.Use(), topology.Socket, topology.Cache, topology.Core)
	return t
}

// gpus are ranks on the GPUs near these NUMA nodes.
func gpus(nodes ...int) []bind.Rank {
	ranks := make([]bind.Rank, len(nodes))
	for i, n := range nodes {
		ranks[i] = bind.Rank{GPU: topotest.GPU(i), Node: n}
	}
	return ranks
}

// text is a plan in short: the CPUs of each rank, the node of its memory and its own cores; "-" for
// a rank that is not bound.
func text(bindings []bind.Binding) string {
	words := make([]string, len(bindings))
	for i, b := range bindings {
		words[i] = "-"
		if !b.CPUs.Empty() {
			words[i] = fmt.Sprintf("%v/m%d/%d", b.CPUs, b.Memory, b.Cores)
		}
	}
	return strings.Join(words, " ")
}

func codes(warnings []bind.Warning) string {
	var all []string
	for _, w := range warnings {
		all = append(all, w.Code)
	}
	return strings.Join(all, " ")
}

func TestPlan(t *testing.T) {
	far := bind.Rank{GPU: "0000:99:00.0", Node: topology.Unknown}
	only := func(m topotest.Machine, cpus string) topology.Topology {
		got := read(m)
		allowed, err := topology.ParseSet(cpus)
		if err != nil {
			t.Fatal(err)
		}
		got.CPUs = allowed
		return got
	}
	half := strings.Repeat("0-47,96-143/m0/0 ", 4) + strings.TrimSpace(strings.Repeat("48-95,144-191/m1/0 ", 4))
	for name, test := range map[string]struct {
		machine topology.Topology
		ranks   []bind.Rank
		policy  bind.Policy
		want    string
		codes   string
	}{
		"p5 numa":   {read(topotest.P5), gpus(topotest.P5.GPUs...), bind.NUMA, half, ""},
		"p5 socket": {read(topotest.P5), gpus(topotest.P5.GPUs...), bind.Socket, half, ""},
		"p5 auto":   {read(topotest.P5), gpus(topotest.P5.GPUs...), bind.Auto, half, ""},
		"p5 none":   {read(topotest.P5), gpus(0, 1), bind.None, "- -", ""},
		"p5 core": {
			read(topotest.P5), gpus(0, 0, 1, 1), bind.Core,
			"0-23,96-119/m0/24 24-47,120-143/m0/24 48-71,144-167/m1/24 72-95,168-191/m1/24", "",
		},
		"p5 core, three ranks on a node": {
			read(topotest.P5), gpus(0, 1, 0, 0), bind.Core,
			"0-15,96-111/m0/16 48-95,144-191/m1/48 16-31,112-127/m0/16 32-47,128-143/m0/16", "",
		},
		"p5 l3": {read(topotest.P5), gpus(0, 0, 0), bind.Cache, "0-11,96-107/m0/12 12-29,108-125/m0/18 30-47,126-143/m0/18", ""},
		"p4d l3, one cache for all": {
			read(topotest.P4d), gpus(0, 0, 1), bind.Cache, "0-23,48-71/m0/12 0-23,48-71/m0/12 24-47,72-95/m1/24", "",
		},
		"gb200 core":                        {read(topotest.GB200), gpus(0, 0, 1, 1), bind.Core, "0-35/m0/36 36-71/m0/36 72-107/m1/36 108-143/m1/36", ""},
		"gb200, GPUs near their own memory": {read(topotest.GB200), gpus(2, 3), bind.NUMA, "0-71/m0/0 72-143/m1/0", ""},
		"gb200 without known l3 caches": {
			read(topotest.GB200), gpus(0, 1), bind.Cache, "0-71/m0/0 72-143/m1/0", bind.CodeCache,
		},
		"dgx a100 numa": {
			read(topotest.DGXA100), gpus(3, 1, 7), bind.NUMA, "48-63,176-191/m3/0 16-31,144-159/m1/0 112-127,240-255/m7/0", "",
		},
		"dgx a100 auto: every second node has no GPU": {
			read(topotest.DGXA100), gpus(topotest.DGXA100.GPUs...), bind.Auto,
			strings.Repeat("0-63,128-191/m-1/0 ", 4) + strings.TrimSpace(strings.Repeat("64-127,192-255/m-1/0 ", 4)), "",
		},
		"auto, one rank":               {read(topotest.P5), gpus(0), bind.Auto, "-", ""},
		"auto, one node":               {read(topotest.P5), gpus(0, 0, 0, 0), bind.Auto, "- - - -", ""},
		"auto, uneven":                 {read(topotest.P5), gpus(0, 0, 0, 1), bind.Auto, "- - - -", ""},
		"auto, nearly even":            {read(topotest.P5), gpus(0, 0, 1), bind.Auto, "0-47,96-143/m0/0 0-47,96-143/m0/0 48-95,144-191/m1/0", ""},
		"auto, GPU of unknown node":    {read(topotest.P5), []bind.Rank{far, gpus(0)[0]}, bind.Auto, "- -", ""},
		"auto, no GPUs":                {read(topotest.P5), make([]bind.Rank, 4), bind.Auto, "- - - -", ""},
		"auto, laptop":                 {read(topotest.Laptop), gpus(0), bind.Auto, "-", ""},
		"auto, CPUs of one node alone": {only(topotest.P5, "0-20"), gpus(0, 1), bind.Auto, "- -", ""},
		"CPU ranks are dealt out":      {read(topotest.Laptop), make([]bind.Rank, 2), bind.Core, "0-1,4-5/m0/2 2-3,6-7/m0/2", ""},
		"CPU ranks on two nodes": {
			read(topotest.P4d), make([]bind.Rank, 3), bind.NUMA, "0-23,48-71/m0/0 0-23,48-71/m0/0 24-47,72-95/m1/0", "",
		},
		"a GPU of unknown node": {
			read(topotest.P5),
			[]bind.Rank{gpus(0)[0], far, far},
			bind.NUMA,
			"0-47,96-143/m0/0 0-47,96-143/m0/0 48-95,144-191/m1/0", bind.CodeGPU + " " + bind.CodeGPU,
		},
		"a GPU of unknown node, and one node": {read(topotest.Laptop), []bind.Rank{far}, bind.NUMA, "0-7/m0/0", ""},
		"some CPUs alone":                     {only(topotest.P5, "0-7,50,96-97"), gpus(0, 0, 1), bind.Core, "0-3,96-97/m0/4 4-7/m0/4 50/m1/1", ""},
		"no CPU near the GPU":                 {only(topotest.P5, "0-7"), gpus(1), bind.NUMA, "0-7/m0/0", bind.CodeFar},
		"fewer cores than ranks": {
			only(topotest.Laptop, "0-1,4"), make([]bind.Rank, 3), bind.Core, "0,4/m0/1 0,4/m0/1 1/m0/1", bind.CodeShared,
		},
		"CPUs unknown to sysfs": {only(topotest.Laptop, "100-101"), make([]bind.Rank, 2), bind.Core, "100/m-1/1 101/m-1/1", ""},
		"unknown CPUs":          {only(topotest.P5, ""), gpus(0), bind.Core, "-", ""},
		"no ranks":              {read(topotest.P5), nil, bind.Core, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := bind.Plan(test.machine, test.ranks, test.policy)
			if text(got) != test.want || codes(warnings) != test.codes {
				t.Errorf("got  %s, warnings %v\nwant %s, warnings %s", text(got), warnings, test.want, test.codes)
			}
		})
	}
}

func TestAutoLeavesAMemoryPolicyAlone(t *testing.T) {
	machine := read(topotest.P5)
	machine.Policed = true
	if got, _ := bind.Plan(machine, gpus(0, 1), bind.Auto); text(got) != "- -" {
		t.Errorf("bound to %s", text(got))
	}
	if got, _ := bind.Plan(machine, gpus(0, 1), bind.NUMA); text(got) == "- -" {
		t.Error("not bound though it was asked for")
	}
}

func TestNoMemoryPolicyAllowed(t *testing.T) {
	m := topotest.P5
	machine, _ := topology.Read(m.Sys(), topology.Use{CPUs: m.CPUs()})
	if got, _ := bind.Plan(machine, gpus(0), bind.NUMA); text(got) != "0-47,96-143/m-1/0" {
		t.Errorf("got %s", text(got))
	}
}

func TestWhy(t *testing.T) {
	for policy, want := range map[bind.Policy]string{
		bind.NUMA:   "NUMA node 1, near GPU 0000:10:00.0",
		bind.Socket: "socket 1, near GPU 0000:10:00.0",
		bind.Core:   "48 of 48 cores of NUMA node 1, near GPU 0000:10:00.0",
		bind.Cache:  "8 of 8 L3 caches of NUMA node 1, near GPU 0000:10:00.0",
		bind.None:   "not bound: --bind none",
	} {
		if got, _ := bind.Plan(read(topotest.P5), gpus(1), policy); got[0].Why != want {
			t.Errorf("%s: %q, want %q", policy, got[0].Why, want)
		}
	}
}

// TestProperties checks properties for any machine, any usable CPUs, any ranks and any policy.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topotest.Machine{
			Nodes: rapid.IntRange(1, 4).Draw(t, "nodes"), CoresPerNode: rapid.IntRange(1, 9).Draw(t, "cores"),
			Threads: rapid.IntRange(1, 2).Draw(t, "threads"), NodesPerSocket: rapid.IntRange(1, 2).Draw(t, "nodes per socket"),
			CoresPerCache: rapid.IntRange(0, 4).Draw(t, "cache"), MemoryNodes: rapid.IntRange(0, 2).Draw(t, "memory"),
		}
		machine := read(m)
		all := m.CPUs()
		machine.CPUs = topology.SetOf(rapid.SliceOfDistinct(rapid.SampledFrom(all.List()), rapid.ID).Draw(t, "allowed")...)
		ranks := make([]bind.Rank, rapid.IntRange(0, 12).Draw(t, "ranks"))
		for i := range ranks {
			if node := rapid.IntRange(-2, m.Nodes+m.MemoryNodes-1).Draw(t, "node"); node >= topology.Unknown {
				ranks[i] = bind.Rank{GPU: topotest.GPU(i), Node: node}
			}
		}
		policy := rapid.SampledFrom(bind.Policies).Draw(t, "policy")
		got, warnings := bind.Plan(machine, ranks, policy)
		if again, _ := bind.Plan(machine, ranks, policy); !reflect.DeepEqual(again, got) {
			t.Fatalf("twice: %s and %s", text(got), text(again))
		}
		check(t, machine, ranks, got, policy)
		if policy == bind.Core && !machine.CPUs.Empty() && !strings.Contains(codes(warnings), bind.CodeShared) {
			checkCores(t, machine, got)
		}
	})
}

// check checks the properties that all policies have.
func check(t *rapid.T, machine topology.Topology, ranks []bind.Rank, got []bind.Binding, policy bind.Policy) {
	if len(got) != len(ranks) {
		t.Fatalf("%d bindings for %d ranks", len(got), len(ranks))
	}
	var used topology.Set
	bound := 0
	for i, b := range got {
		if beyond := b.CPUs.Without(machine.CPUs); !beyond.Empty() {
			t.Fatalf("rank %d has %v, but %v must not be used", i, b.CPUs, beyond)
		}
		used = used.Or(b.CPUs)
		if !b.CPUs.Empty() {
			bound++
		}
		if b.Why == "" || b.Cores > b.CPUs.Len() {
			t.Fatalf("rank %d: %+v", i, b)
		}
	}
	switch {
	case policy == bind.None || machine.CPUs.Empty():
		if bound > 0 {
			t.Fatalf("bound: %s", text(got))
		}
	case policy == bind.Auto:
		if bound != 0 && (bound != len(got) || used != machine.CPUs) {
			t.Fatalf("auto binds %d of %d ranks to %v of %v", bound, len(got), used, machine.CPUs)
		}
	case bound != len(got):
		t.Fatalf("%d of %d ranks are bound", bound, len(got))
	}
}

// checkCores checks that no core belongs to two ranks, that the ranks of a node have all of its
// cores, and that their numbers of cores differ by at most one.
func checkCores(t *rapid.T, machine topology.Topology, got []bind.Binding) {
	var used topology.Set
	for i, b := range got {
		if both := used.And(b.CPUs); !both.Empty() {
			t.Fatalf("rank %d shares CPUs %v", i, both)
		}
		used = used.Or(b.CPUs)
		for _, core := range machine.Groups[topology.Core] {
			if part, whole := core.And(b.CPUs), core.And(machine.CPUs); !part.Empty() && part != whole {
				t.Fatalf("rank %d has %v of core %v", i, part, whole)
			}
		}
	}
	for _, n := range machine.Nodes {
		cpus := n.CPUs.And(machine.CPUs)
		var cores []int
		for _, b := range got {
			if part := b.CPUs.And(cpus); !part.Empty() {
				cores = append(cores, b.Cores)
			}
		}
		if len(cores) == 0 {
			continue
		}
		if idle := cpus.Without(used); !idle.Empty() || slices.Max(cores) > slices.Min(cores)+1 {
			t.Fatalf("node %d: idle %v, cores %v", n.ID, idle, cores)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	machine, ranks := read(topotest.P5), gpus(topotest.P5.GPUs...)
	for _, policy := range bind.Policies {
		b.Run(string(policy), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bind.Plan(machine, ranks, policy)
			}
		})
	}
}
