package placement

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// node returns a node with GPUs 0 to gpus-1, of which pid 4411 holds those in held.
func node(name, addr string, gpus int, held ...int) Node {
	n := Node{Name: name, Addr: netip.MustParseAddr(addr)}
	for i := range gpus {
		g := GPU{Index: i, UUID: fmt.Sprintf("GPU-%s-%d", name, i)}
		if slices.Contains(held, i) {
			g.HeldBy = "pid 4411"
		}
		n.GPUs = append(n.GPUs, g)
	}
	return n
}

// text returns the groups of a plan with the GPUs of their ranks: "n1:0,1 n2:0".
func text(p Plan) string {
	var groups []string
	for _, g := range p.Groups {
		var gpus []string
		for _, b := range g.Bundles {
			if b.GPU == nil {
				gpus = append(gpus, "-")
				continue
			}
			gpus = append(gpus, fmt.Sprint(b.GPU.Index))
		}
		groups = append(groups, g.Node.Name+":"+strings.Join(gpus, ","))
	}
	return strings.Join(groups, " ")
}

func cluster() []Node {
	return []Node{
		node("n10", "10.0.0.10", 2),
		node("n9", "10.0.0.9", 4, 1),
		node("a", "fd00::1", 2),
		node("n2", "::ffff:10.0.0.2", 8),
	}
}

func TestSolve(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Request
		want string
	}{
		{
			"strict pack is the default and sorts by address",
			Request{MinNodes: 4, MaxNodes: 4, PerNode: []int{2}, GPU: true},
			"n2:0,1 n9:0,2 n10:0,1 a:0,1",
		},
		{"the first nodes in order are chosen", Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{2}, GPU: true}, "n2:0,1 n9:0,2"},
		{"as many nodes as there are", Request{MinNodes: 1, MaxNodes: 9, PerNode: []int{3}, GPU: true}, "n2:0,1,2 n9:0,2,3"},
		{
			"by name",
			Request{MinNodes: 4, MaxNodes: 4, PerNode: []int{1}, GPU: true, Order: Order{By: ByName}},
			"a:0 n2:0 n9:0 n10:0",
		},
		{"by list", Request{
			MinNodes: 1, MaxNodes: 4, PerNode: []int{1}, GPU: true,
			Order: Order{By: ByList, List: []string{"n10", "gone", "a"}},
		}, "n10:0 a:0"},
		{
			"all GPUs needs them free",
			Request{MinNodes: 1, MaxNodes: 4, PerNode: []int{AllGPUs}, GPU: true},
			"n2:0,1,2,3,4,5,6,7 n10:0,1 a:0,1",
		},
		{
			"pack with all GPUs takes whole nodes",
			Request{MinNodes: 1, MaxNodes: 2, PerNode: []int{AllGPUs}, GPU: true, Strategy: Pack},
			"n2:0,1,2,3,4,5,6,7 n10:0,1",
		},
		{
			"a list gives each rank its number",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{2, 8, 3}, GPU: true},
			"n10:0,1 n2:0,1,2,3,4,5,6,7 n9:0,2,3",
		},
		{
			"a list takes the first node that leaves room for the rest",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{1, 4, 3}, GPU: true},
			"n10:0 n2:0,1,2,3 n9:0,2,3",
		},
		{
			"fewer nodes use the first entries",
			Request{MinNodes: 1, MaxNodes: 3, PerNode: []int{2, 4, 4}, GPU: true},
			"n9:0,2 n2:0,1,2,3",
		},
		{"CPU ranks share nothing", Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{2}}, "n2:-,- n9:-,-"},
		{
			"pack fills the node with most free",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{3}, GPU: true, Strategy: Pack},
			"n2:0,1,2,3,4,5,6,7 n9:0",
		},
		{
			"pack reduces the job to what fits",
			Request{MinNodes: 1, MaxNodes: 9, PerNode: []int{4}, GPU: true, Strategy: Pack},
			"n2:0,1,2,3,4,5,6,7 n9:0,2,3 n10:0",
		},
		{
			"spread uses each node, then the best again",
			Request{
				MinNodes: 2, MaxNodes: 2, PerNode: []int{4}, GPU: true,
				Strategy: Spread,
			},
			"n2:0,1,2,3,4 n9:0 n10:0 a:0",
		},
		{"spread prefers the node with most free", Request{
			MinNodes: 2, MaxNodes: 2, PerNode: []int{1}, GPU: true, Strategy: Spread,
			Order: Order{By: ByName},
		}, "n2:0 n9:0"},
		{
			"spread of ranks that ask for nothing takes turns",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{3}, Strategy: Spread},
			"n2:-,- n9:-,- n10:- a:-",
		},
		{
			"strict spread",
			Request{MinNodes: 1, MaxNodes: 3, PerNode: []int{2}, GPU: true, Strategy: StrictSpread},
			"n2:0 n9:0 n10:0 a:0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Solve(tt.r, cluster())
			if err != nil {
				t.Fatal(err)
			}
			if got := text(p); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCPUsAndMemory(t *testing.T) {
	small, big, unknown := node("small", "10.0.0.1", 0), node("big", "10.0.0.2", 0), node("unknown", "10.0.0.3", 0)
	small.CPUs, small.Memory = 8, 64<<30
	big.CPUs, big.Memory = 16, 64<<30
	r := Request{MinNodes: 1, MaxNodes: 3, PerNode: []int{4}, CPUs: 4, Memory: 16 << 30}
	p, err := Solve(r, []Node{small, big, unknown})
	if err != nil || text(p) != "big:-,-,-,- unknown:-,-,-,-" {
		t.Errorf("got %s, %v", text(p), err)
	}
}

func TestSpreadSkipsFullNodes(t *testing.T) {
	full, unknown := node("full", "10.0.0.1", 0), node("unknown", "10.0.0.2", 0)
	full.CPUs = 5
	r := Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{6}, CPUs: 2, Strategy: Spread}
	p, err := Solve(r, []Node{full, unknown})
	if err != nil || text(p) != "full:-,- unknown:-,-,-,-" {
		t.Errorf("got %s, %v", text(p), err)
	}
}

func TestKeep(t *testing.T) {
	four := []Node{node("a", "10.0.0.1", 2), node("b", "10.0.0.2", 4), node("c", "10.0.0.3", 4), node("d", "10.0.0.4", 4)}
	for _, tt := range []struct {
		name    string
		r       Request
		keep    map[string]int
		present string
		want    string
	}{
		{
			"kept nodes are preferred and stay",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{1}},
			map[string]int{"d": 0, "b": 1},
			"abcd", "d:0 b:0",
		},
		{
			"a new node takes the lost node's rank",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{1}},
			map[string]int{"d": 2, "gone": 0, "b": 1},
			"abd", "a:0 b:0 d:0",
		},
		{
			"a grown job adds its new ranks behind",
			Request{MinNodes: 1, MaxNodes: 4, PerNode: []int{1}},
			map[string]int{"c": 0, "d": 1},
			"acd", "c:0 d:0 a:0",
		},
		{
			"a shrunk job closes up in the old order",
			Request{MinNodes: 1, MaxNodes: 4, PerNode: []int{1}},
			map[string]int{"d": 0, "gone": 1, "c": 2, "a": 3},
			"acd", "d:0 c:0 a:0",
		},
		{
			"new nodes come behind those that closed up",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{1}},
			map[string]int{"d": 0, "c": 3},
			"acd", "d:0 c:0 a:0",
		},
		{
			"a smaller job drops the last ranks",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{1}},
			map[string]int{"d": 0, "c": 1, "b": 2},
			"bcd", "d:0 c:0",
		},
		{
			"a rank whose node lacks room now goes elsewhere",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{4}},
			map[string]int{"a": 0, "c": 1},
			"acd", "d:0,1,2,3 c:0,1,2,3",
		},
		{
			"keeping a rank never makes a job infeasible",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{2, 4}},
			map[string]int{"d": 0},
			"ad", "a:0,1 d:0,1,2,3",
		},
		{
			"pack stays where it was",
			Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{5}, Strategy: Pack},
			map[string]int{"d": 0, "a": 1},
			"abcd", "d:0,1,2,3 a:0",
		},
		{
			"spread stays where it was",
			Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{2}, Strategy: Spread},
			map[string]int{"d": 1, "a": 0},
			"abcd", "a:0 d:0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := slices.DeleteFunc(slices.Clone(four), func(n Node) bool { return !strings.Contains(tt.present, n.Name) })
			tt.r.GPU, tt.r.Keep = true, tt.keep
			p, err := Solve(tt.r, nodes)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(p); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestTwins(t *testing.T) {
	r := Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}}
	named := []Node{node("a", "10.0.0.2", 0), node("a", "10.0.0.1", 0)}
	addressed := []Node{node("b", "10.0.0.1", 0), node("a", "::ffff:10.0.0.1", 0)}
	for _, nodes := range [][]Node{named, addressed} {
		want := "two nodes are named a, at 10.0.0.1 and at 10.0.0.2; give each a name of its own"
		if nodes[0].Name != nodes[1].Name {
			want = "nodes a and b have one address, 10.0.0.1; give each the address at which the others reach it"
		}
		for range 2 {
			_, err := Solve(r, nodes)
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			slices.Reverse(nodes)
		}
	}
	machine := map[string]string{MachineLabel: "m1"}
	addressed[0].Labels, addressed[1].Labels = machine, machine
	if p, err := Solve(r, addressed); err != nil || text(p) != "a:-" {
		t.Errorf("one machine: got %s, %v", text(p), err)
	}
	addressed[0].Labels = map[string]string{MachineLabel: "m2"}
	if _, err := Solve(r, addressed); err == nil {
		t.Error("two machines with one address were accepted")
	}
	r.SharedAddr = true
	if p, err := Solve(r, addressed); err != nil || text(p) != "a:-" {
		t.Errorf("shared address: got %s, %v", text(p), err)
	}
	if _, err := Solve(r, named); err == nil {
		t.Error("shared address: two nodes with one name were accepted")
	}
}

func TestNodesWithoutAddressComeLast(t *testing.T) {
	r := Request{MinNodes: 1, MaxNodes: 3, PerNode: []int{1}}
	p, err := Solve(r, []Node{{Name: "x10"}, {Name: "x9"}, node("z", "fd00::1", 0)})
	if err != nil || text(p) != "z:- x9:- x10:-" {
		t.Errorf("got %s, %v", text(p), err)
	}
}

func TestPlan(t *testing.T) {
	if p := (Plan{}); p.WorldSize() != 0 || p.Master().IsValid() {
		t.Errorf("empty plan: world size %d, master %v", p.WorldSize(), p.Master())
	}
	p, err := Solve(Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{3, 2}, GPU: true}, cluster())
	if err != nil || p.WorldSize() != 5 || p.Master() != netip.MustParseAddr("::ffff:10.0.0.2") {
		t.Errorf("world size %d, master %v, %v", p.WorldSize(), p.Master(), err)
	}
}

func TestSolveRefusesBadRequests(t *testing.T) {
	var infeasible *InfeasibleError
	if _, err := Solve(Request{}, cluster()); err == nil || errors.As(err, &infeasible) {
		t.Errorf("got %v, want the error of Validate", err)
	}
}

// TestSlots places a job on nodes with a SlotsLabel.
func TestSlots(t *testing.T) {
	nodes := []Node{slotted(node("n3", "10.0.0.3", 8), "3"), slotted(node("n2", "10.0.0.2", 2), "1"), node("n1", "10.0.0.1", 2)}
	for gpu, want := range map[bool]string{true: "n1:0,1 n2:0 n3:0,1,2", false: "n2:- n3:-,-,-"} {
		p, err := Solve(Request{MinNodes: 2, MaxNodes: 3, PerNode: []int{AllGPUs}, GPU: gpu}, nodes)
		if got := text(p); err != nil || got != want {
			t.Errorf("%q (%v), want %q", got, err, want)
		}
	}
}
