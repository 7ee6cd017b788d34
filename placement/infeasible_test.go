package placement

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestInfeasible(t *testing.T) {
	free, held, small, none := node("n1", "10.0.0.1", 8), node("n3", "10.0.0.3", 8, 5), node("n2", "10.0.0.2", 4),
		node("n4", "10.0.0.4", 0)
	lean := free
	lean.Name, lean.CPUs, lean.Memory = "n5", 16, 96<<30
	all := Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{AllGPUs}, GPU: true}
	eight := Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{8}, GPU: true}
	with := func(r Request, change func(*Request)) Request { change(&r); return r }
	for _, tt := range []struct {
		name    string
		r       Request
		nodes   []Node
		want    string
		missing int
		ever    bool
	}{
		{
			"a node without slots", with(all, func(r *Request) { r.GPU = false }),
			[]Node{slotted(free, "2"), held},
			`cannot place the job: found 1 of 2 nodes with room for its ranks; n3: says nothing of how many ranks it runs (label slots=""), which is to be a number from 1 to 65535; ask for less, or add nodes`,
			0, false,
		},
		{
			"more slots than GPUs", all,
			[]Node{slotted(free, "9"), slotted(held, "7")},
			"cannot place the job: found 1 of 2 nodes with all GPUs free; n1: has 8 GPUs, 9 wanted; ask for less, or add nodes", 0, false,
		},
		{"no nodes", eight, nil, "cannot place the job yet: 0 of 2 nodes are there", 2, true},
		{
			"a node is missing", with(eight, func(r *Request) { r.MinNodes, r.MaxNodes = 3, 4 }),
			[]Node{free, held},
			"cannot place the job yet: 2 of 3 nodes are there; n3: 7 of 8 GPUs free, gpu5 held by pid 4411", 1, true,
		},
		{
			"a GPU is held", eight,
			[]Node{held, free},
			"cannot place the job yet: found 1 of 2 nodes with room for 8 ranks; n3: 7 of 8 GPUs free, gpu5 held by pid 4411", 0, true,
		},
		{
			"ranks that share GPUs", with(eight, func(r *Request) { r.PerNode, r.PerGPU, r.MinNodes = []int{15}, 2, 1 }),
			[]Node{held, small},
			"cannot place the job yet: found 0 of 1 node with room for 15 ranks; n2: has 4 GPUs, 8 wanted; " +
				"n3: 7 of 8 GPUs free, gpu5 held by pid 4411", 0, true,
		},
		{
			"a node is unfit", eight,
			[]Node{free, sick(held)},
			"cannot place the job: found 1 of 2 nodes with room for 8 ranks; n3: unfit: gpu-ecc; ask for less, or add nodes", 0, false,
		},
		{
			"a node is unfit for ranks without GPUs", with(eight, func(r *Request) { r.GPU = false }),
			[]Node{free, sick(held)},
			"cannot place the job: found 1 of 2 nodes with room for 8 ranks; n3: unfit: gpu-ecc; ask for less, or add nodes", 0, false,
		},
		{
			"a node is too small", eight,
			[]Node{free, small},
			"cannot place the job: found 1 of 2 nodes with room for 8 ranks; n2: has 4 GPUs, 8 wanted; " +
				"ask for less, or add nodes", 0, false,
		},
		{
			"all GPUs", all,
			[]Node{free, held, none},
			"cannot place the job yet: found 1 of 2 nodes with all GPUs free; " +
				"n3: 7 of 8 GPUs free, gpu5 held by pid 4411; n4: has no GPU, 1 wanted", 0, true,
		},
		{
			"the largest entry of a list comes short",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{4, 8, 8}, GPU: true},
			[]Node{free, held, small},
			"cannot place the job yet: found 1 of 2 nodes with room for 8 ranks; n2: has 4 GPUs, 8 wanted; " +
				"n3: 7 of 8 GPUs free, gpu5 held by pid 4411", 0, true,
		},
		{
			"a smaller entry of a list comes short",
			Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{8, 4, 4}, GPU: true},
			[]Node{free, small, none},
			"cannot place the job: found 2 of 3 nodes with room for 4 ranks; n4: has no GPU, 4 wanted; " +
				"ask for less, or add nodes", 0, false,
		},
		{
			"not in the list", with(eight, func(r *Request) { r.Order = Order{By: ByList, List: []string{"n1", "n9"}} }),
			[]Node{free, held},
			"cannot place the job yet: 1 of 2 nodes are there; n3: not in the order's list", 1, true,
		},
		{
			"CPUs and memory", with(eight, func(r *Request) { r.CPUs, r.Memory, r.MinNodes = 4, 3<<29, 1 }),
			[]Node{lean},
			"cannot place the job: found 0 of 1 node with room for 8 ranks; n5: has 16 CPUs, 8 ranks of 4 wanted; " +
				"ask for less, or add nodes", 0, false,
		},
		{
			"memory", with(eight, func(r *Request) { r.Memory, r.MinNodes = 33<<29, 1 }),
			[]Node{lean},
			"cannot place the job: found 0 of 1 node with room for 8 ranks; " +
				"n5: has 96 GiB of memory, 8 ranks of 16.5 GiB wanted; ask for less, or add nodes", 0, false,
		},
		{
			"pack", with(eight, func(r *Request) { r.Strategy = Pack }),
			[]Node{held, free},
			"cannot place the job yet: found room for 15 of 16 ranks; n1: has 8 GPUs, 16 wanted; " +
				"n3: has 8 GPUs, 16 wanted, gpu5 held by pid 4411", 0, true,
		},
		{
			"spread", with(eight, func(r *Request) { r.Strategy = Spread }),
			[]Node{small, free},
			"cannot place the job: found room for 12 of 16 ranks; n1: has 8 GPUs, 16 wanted; n2: has 4 GPUs, 16 wanted; " +
				"ask for less, or add nodes", 0, false,
		},
		{
			"strict spread lacks nodes", with(eight, func(r *Request) { r.Strategy, r.PerNode = StrictSpread, []int{2} }),
			[]Node{free, none, small},
			"cannot place the job yet: 3 of 4 nodes are there; n4: has no GPU, 1 wanted", 1, true,
		},
		{
			"strict spread lacks room", with(eight, func(r *Request) { r.Strategy, r.PerNode = StrictSpread, []int{1} }),
			[]Node{free, none},
			"cannot place the job: found 1 of 2 nodes with room for 1 rank; n4: has no GPU, 1 wanted; " +
				"ask for less, or add nodes", 0, false,
		},
		{
			"more than a node can ever run",
			Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{maxPerNode}, Strategy: Pack},
			[]Node{free},
			"cannot place the job yet: 1 of 2 nodes are there; n1: takes at most 65535 ranks", 1, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Solve(tt.r, tt.nodes)
			var e *InfeasibleError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an InfeasibleError", err)
			}
			if got := e.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if e.Missing != tt.missing || e.Ever != tt.ever {
				t.Errorf("got missing %d, ever %v; want %d, %v", e.Missing, e.Ever, tt.missing, tt.ever)
			}
		})
	}
}

func TestInfeasibleIsBounded(t *testing.T) {
	var nodes []Node
	for i := range 100 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", i+1), fmt.Sprintf("10.0.1.%d", 100-i), 8, 0, 1, 2, 3, 4, 5))
	}
	_, err := Solve(Request{MinNodes: 100, MaxNodes: 100, PerNode: []int{8}, GPU: true}, nodes)
	const gpus = "2 of 8 GPUs free, gpu0 held by pid 4411, gpu1 held by pid 4411, gpu2 held by pid 4411, and 3 more held"
	want := "cannot place the job yet: found 0 of 100 nodes with room for 8 ranks; n1: " + gpus + "; n2: " + gpus + "; n3: " + gpus +
		"; and 97 more"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var e *InfeasibleError
	if !errors.As(err, &e) || len(e.Nodes) != 100 || e.Nodes[9].Node != "n10" || !strings.Contains(e.Nodes[99].Why, "gpu0") {
		t.Errorf("the reasons are not those of all nodes in the order of names: %v", e.Nodes)
	}
}

func sick(n Node) Node {
	n.Labels = map[string]string{UnfitLabel: "gpu-ecc"}
	return n
}

// slotted returns the node with a SlotsLabel.
func slotted(n Node, slots string) Node {
	n.Labels = map[string]string{SlotsLabel: slots}
	return n
}
