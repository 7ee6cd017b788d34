package topology_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/internal/testkit/topotest"
)

var levels = []topology.Level{topology.Socket, topology.Cache, topology.Core}

func TestReadMachines(t *testing.T) {
	for name, test := range map[string]struct {
		m                     topotest.Machine
		sockets, caches, core int
		node1                 string
	}{
		"p5":      {topotest.P5, 2, 16, 96, "48-95,144-191"},
		"p4d":     {topotest.P4d, 2, 2, 48, "24-47,72-95"},
		"gb200":   {topotest.GB200, 2, 0, 144, "72-143"},
		"dgxa100": {topotest.DGXA100, 2, 32, 128, "16-31,144-159"},
		"laptop":  {topotest.Laptop, 1, 1, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sys := test.m.Sys()
			got, warnings := topology.Read(sys, test.m.Use(), levels...)
			if len(warnings) > 0 {
				t.Errorf("warnings %v", warnings)
			}
			g := got.Groups
			if len(got.Nodes) != test.m.Nodes || len(g[topology.Socket]) != test.sockets ||
				len(g[topology.Cache]) != test.caches || len(g[topology.Core]) != test.core {
				t.Errorf("%d nodes, %d sockets, %d caches, %d cores, want %d, %d, %d, %d", len(got.Nodes), len(g[topology.Socket]),
					len(g[topology.Cache]), len(g[topology.Core]), test.m.Nodes, test.sockets, test.caches, test.core)
			}
			if test.node1 != "" && got.Nodes[1].CPUs.String() != test.node1 {
				t.Errorf("node 1 has CPUs %v, want %s", got.Nodes[1].CPUs, test.node1)
			}
			for i, node := range test.m.GPUs {
				if id := got.NodeOf(sys, topotest.GPU(i)); id != node || !got.Nodes[id].Memory || got.Nearest(id) != id {
					t.Errorf("GPU %d is near node %d (memory %v), want %d", i, id, got.Nodes[id].Memory, node)
				}
			}
		})
	}
}

// On a tray of GB200, the GPUs' memories are NUMA nodes without CPUs. A device near such a node is
// near the CPUs at the least distance.
func TestNearestOfNodeWithoutCPUs(t *testing.T) {
	got, _ := topology.Read(topotest.GB200.Sys(), topotest.GB200.Use())
	for id, want := range map[int]int{2: 0, 3: 1, 32: 0, 33: 1, 34: -1, topology.Unknown: -1} {
		if n := got.Nearest(id); n != want {
			t.Errorf("node %d is nearest to %d, want %d", id, n, want)
		}
	}
	got.CPUs = topotest.GB200.NodeCPUs(1)
	if n := got.Nearest(0); n != 1 {
		t.Errorf("with no CPU of node 0, that is nearest to %d, want 1", n)
	}
	if !got.Has(0) || got.Has(2) {
		t.Error("node 0 has CPUs, node 2 has none")
	}
}

func TestDeviceWithoutNode(t *testing.T) {
	sys := topotest.P5.Sys()
	got, _ := topology.Read(sys, topotest.P5.Use())
	dir := "bus/pci/devices/" + topotest.GPU(5)
	for _, test := range []struct {
		node, cpus string
		want       int
	}{
		{"-1", "48-95,144-191", 1},
		{"-1", "50-60", 1},
		{"", "0", 0},
		{"x", "0-3", 0},
		{"99999", "0", 0},
		{"-1", "0-191", topology.Unknown},
		{"-1", "", topology.Unknown},
		{"-1", "a-b", topology.Unknown},
		{"-1", "400", topology.Unknown},
	} {
		topotest.Put(sys, dir+"/numa_node", test.node)
		topotest.Put(sys, dir+"/local_cpulist", test.cpus)
		if id := got.NodeOf(sys, topotest.GPU(5)); id != test.want {
			t.Errorf("numa_node %q, local_cpulist %q: node %d, want %d", test.node, test.cpus, id, test.want)
		}
	}
	for _, address := range []string{"0000:ff:00.0", "../..", "", "a/b"} {
		if id := got.NodeOf(sys, address); id != topology.Unknown {
			t.Errorf("device %q, which is not there, is near node %d", address, id)
		}
	}
}

func TestOfflineCPUs(t *testing.T) {
	m := topotest.P5
	m.Offline = topology.SetOf(0, 97, 191)
	got, warnings := topology.Read(m.Sys(), topology.Use{CPUs: m.CPUs().Or(m.Offline)}, levels...)
	if len(warnings) > 0 {
		t.Errorf("warnings %v", warnings)
	}
	for l, groups := range got.Groups {
		var all topology.Set
		for _, g := range groups {
			all = all.Or(g)
		}
		if all != m.CPUs() {
			t.Errorf("the %ss have CPUs %v, want %v", l, all, m.CPUs())
		}
	}
	if n := len(got.Groups[topology.Core]); n != 96 {
		t.Errorf("%d cores, want 96: each has a thread online", n)
	}
}

func TestMachineWithoutNUMA(t *testing.T) {
	use := topology.Use{CPUs: topology.SetOf(0, 1, 5), Memory: topology.SetOf(0)}
	got, warnings := topology.Read(fstest.MapFS{}, use)
	if len(warnings) > 0 || len(got.Nodes) != 1 || got.Nodes[0].CPUs != use.CPUs || !got.Nodes[0].Memory {
		t.Errorf("got %+v, warnings %v", got, warnings)
	}
}

func TestKernelBefore53(t *testing.T) {
	sys := topotest.P5.Sys()
	want, _ := topology.Read(sys, topotest.P5.Use(), levels...)
	for name, f := range sys {
		old := strings.NewReplacer("core_cpus_list", "thread_siblings_list", "package_cpus_list", "core_siblings_list").Replace(name)
		delete(sys, name)
		sys[old] = f
	}
	got, warnings := topology.Read(sys, topotest.P5.Use(), levels...)
	if len(warnings) > 0 || fmt.Sprint(got.Groups) != fmt.Sprint(want.Groups) {
		t.Errorf("got %v, warnings %v", got.Groups, warnings)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for name, test := range map[string]struct{ remove, want string }{
		"nodes":   {"devices/system/node/has_cpu", "the NUMA nodes are unknown"},
		"cpulist": {"devices/system/node/node1/cpulist", "the CPUs of NUMA node 1 are unknown"},
		"core":    {"devices/system/cpu/cpu7/topology/core_cpus_list", ""}, // its sibling's file has the same content
		"cores":   {"core_cpus_list", "the cores of CPUs 0-191 are unknown"},
		"sockets": {"package_cpus_list", "the sockets of CPUs 0-191 are unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			sys := topotest.P5.Sys()
			for file := range sys {
				if strings.HasSuffix(file, test.remove) {
					delete(sys, file)
				}
			}
			_, warnings := topology.Read(sys, topotest.P5.Use(), levels...)
			if test.want == "" {
				if len(warnings) > 1 {
					t.Errorf("warnings %v", warnings)
				}
				return
			}
			if len(warnings) != 1 || warnings[0].Code != topology.CodeTopology || !strings.HasPrefix(warnings[0].Text, test.want) {
				t.Errorf("warnings %v, want %q", warnings, test.want)
			}
		})
	}
}

// TestAnyTree checks that no content of files ends the reading, and that the result is sound:
// groups are disjoint and have every CPU that is online.
func TestAnyTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topotest.Machine{
			Nodes: rapid.IntRange(1, 4).Draw(t, "nodes"), CoresPerNode: rapid.IntRange(1, 5).Draw(t, "cores"),
			Threads: rapid.IntRange(1, 2).Draw(t, "threads"), NodesPerSocket: 1, CoresPerCache: 2,
			MemoryNodes: rapid.IntRange(0, 2).Draw(t, "memory"),
		}
		sys := m.Sys()
		files := make([]string, 0, len(sys))
		for name := range sys {
			files = append(files, name)
		}
		slices.Sort(files)
		for range rapid.IntRange(0, 20).Draw(t, "broken") {
			name := rapid.SampledFrom(files).Draw(t, "file")
			if rapid.Bool().Draw(t, "gone") {
				delete(sys, name)
			} else {
				topotest.Put(sys, name, rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9]{1,2}([-,][0-9]{1,4}){0,3}`)).Draw(t, "text"))
			}
		}
		got, _ := topology.Read(sys, m.Use(), levels...)
		var online topology.Set
		for _, n := range got.Nodes {
			if online.Meets(&n.CPUs) {
				t.Fatalf("CPUs %v are of two nodes", online.And(n.CPUs))
			}
			online = online.Or(n.CPUs)
		}
		for l, groups := range got.Groups {
			var all topology.Set
			for _, g := range groups {
				if both := all.And(g); g.Empty() || !both.Empty() {
					t.Fatalf("%s %v is empty or shares %v", l, g, both)
				}
				all = all.Or(g)
			}
			if all != online {
				t.Fatalf("%ss have %v, online are %v", l, all, online)
			}
		}
	})
}

func TestSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfDistinct(rapid.IntRange(0, topology.Limit-1), rapid.ID).Draw(t, "set")
		s := topology.SetOf(list...)
		slices.Sort(list)
		if again, err := topology.ParseSet(s.String()); err != nil || again != s {
			t.Fatalf("%v becomes %q, and that %v, %v", list, s, again, err)
		}
		if got := s.List(); !slices.Equal(got, list) || s.Len() != len(list) || s.Empty() != (len(list) == 0) {
			t.Fatalf("%v has %v", list, got)
		}
	})
	if got := topology.SetOf(0, 1, 2, 5, 1022, 1023).String(); got != "0-2,5,1022-1023" {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"1024", "0-1024", "3-1", "-1", "1-", ",", "0-4294967295", "x", "1 2"} {
		if s, err := topology.ParseSet(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
}

func FuzzParseSet(f *testing.F) {
	f.Add("0-3,8-11\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := topology.ParseSet(text)
		if again, failed := topology.ParseSet(s.String()); err == nil && (failed != nil || again != s) {
			t.Errorf("%q is %v, which is %v, %v", text, s, again, failed)
		}
	})
}

// TestThisMachine compares the facts that are read on this machine with the Go runtime's facts.
func TestThisMachine(t *testing.T) {
	use, _ := topology.Self()
	got, warnings := topology.Read(os.DirFS("/sys"), use, levels...)
	if use.CPUs.Len() != runtime.NumCPU() {
		t.Errorf("this process may use CPUs %v, the runtime counts %d", use.CPUs, runtime.NumCPU())
	}
	var all topology.Set
	for _, n := range got.Nodes {
		all = all.Or(n.CPUs)
	}
	if missing := use.CPUs.Without(all); !missing.Empty() || len(got.Groups[topology.Core]) == 0 {
		t.Errorf("CPUs %v are of no node; warnings %v", missing, warnings)
	}
}

// BenchmarkRead reads a machine of 192 CPUs from files, which take about as long as the files of
// /sys.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	if err := os.CopyFS(dir, topotest.P5.Sys()); err != nil {
		b.Fatal(err)
	}
	for name, l := range map[string][]topology.Level{"nodes": nil, "sockets": {topology.Socket}, "cores": {topology.Core}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				topology.Read(os.DirFS(dir), topotest.P5.Use(), l...)
			}
		})
	}
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			use, _ := topology.Self()
			topology.Read(os.DirFS("/sys"), use, levels...)
		}
	})
}

// TestSelfWithAMemoryPolicy sets a memory policy on a thread that ends with the test.
func TestSelfWithAMemoryPolicy(t *testing.T) {
	before, _ := topology.Self()
	during := make(chan topology.Use)
	go func() {
		runtime.LockOSThread()
		const interleave = 3
		nodes := [1]uint64{1}
		if _, _, err := unix.Syscall(unix.SYS_SET_MEMPOLICY, interleave, uintptr(unsafe.Pointer(&nodes)), 64); err != 0 {
			t.Error(err)
		}
		use, _ := topology.Self()
		during <- use
	}()
	if use := <-during; before.Policed || !use.Policed || !use.Memory.Has(0) {
		t.Errorf("before %+v, with a policy %+v", before, use)
	}
}
