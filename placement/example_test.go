package placement_test

import (
	"fmt"
	"net/netip"

	"github.com/golaunch/golaunch/placement"
)

func ExampleSolve() {
	gpus := []placement.GPU{{Index: 0}, {Index: 1}}
	nodes := []placement.Node{
		{Name: "n10", Addr: netip.MustParseAddr("10.0.0.10"), GPUs: gpus},
		{Name: "n9", Addr: netip.MustParseAddr("10.0.0.9"), GPUs: gpus},
	}
	request := placement.Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{2}, GPU: true}
	plan, err := placement.Solve(request, nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("master", plan.Master(), "world size", plan.WorldSize())
	for _, g := range plan.Groups {
		for _, b := range g.Bundles {
			fmt.Printf("%s gpu%d: rank %d, local rank %d\n", g.Node.Name, b.GPU.Index, b.Rank, b.LocalRank)
		}
	}
	request.MinNodes, request.MaxNodes = 3, 4
	_, err = placement.Solve(request, nodes)
	fmt.Println(err)
	// Output:
	// master 10.0.0.9 world size 4
	// n9 gpu0: rank 0, local rank 0
	// n9 gpu1: rank 1, local rank 1
	// n10 gpu0: rank 2, local rank 0
	// n10 gpu1: rank 3, local rank 1
	// cannot place the job yet: 2 of 3 nodes are there
}
