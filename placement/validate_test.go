package placement

import "testing"

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		change func(*Request)
		want   string
	}{
		{func(r *Request) {}, ""},
		{func(r *Request) { r.PerNode = []int{4, 2} }, ""},
		{func(r *Request) { r.PerNode = []int{AllGPUs} }, ""},
		{func(r *Request) { r.Order = Order{By: ByList, List: []string{"a"}} }, ""},
		{func(r *Request) { r.MinNodes = 0 }, "at least 1 node must be asked for, not 0"},
		{func(r *Request) { r.MinNodes = 3 }, "at most 2 nodes are asked for, fewer than the least number, 3"},
		{func(r *Request) { r.MaxNodes = 1<<20 + 1 }, "1048577 nodes are more than the 1048576 that a job can have"},
		{func(r *Request) { r.CPUs = -1 }, "CPUs per rank must not be negative: -1"},
		{func(r *Request) { r.Memory = -1 }, "memory per rank must not be negative: -1 bytes"},
		{func(r *Request) { r.PerGPU = 48 }, ""},
		{func(r *Request) { r.PerGPU, r.PerNode, r.Strategy = 2, []int{AllGPUs}, Pack }, ""},
		{func(r *Request) { r.PerGPU = 49 }, "ranks per GPU must be from 1 to 48, not 49"},
		{func(r *Request) { r.PerGPU = -1 }, "ranks per GPU must be from 1 to 48, not -1"},
		{func(r *Request) { r.PerGPU, r.GPU = 2, false }, "CPU ranks have no share of a GPU; ask for GPUs"},
		{func(r *Request) { r.PerGPU, r.GPU = 1, false }, ""},
		{
			func(r *Request) { r.PerGPU, r.Strategy = 2, Spread },
			"ranks that share a GPU are neighbours on a node, and SPREAD may part them; use STRICT_PACK",
		},
		{
			func(r *Request) { r.PerNode = nil },
			"ranks per node: 0 numbers for 2 nodes; give one number for all nodes, or one for each",
		},
		{
			func(r *Request) { r.PerNode = []int{1, 2, 3} },
			"ranks per node: 3 numbers for 2 nodes; give one number for all nodes, or one for each",
		},
		{func(r *Request) { r.PerNode = []int{4, 0} }, "ranks per node must be from 1 to 65535, not 0 (number 2 of 2)"},
		{func(r *Request) { r.PerNode = []int{AllGPUs, 1} }, "ranks per node must be from 1 to 65535, not -1 (number 1 of 2)"},
		{func(r *Request) { r.PerNode = []int{1 << 16} }, "ranks per node must be from 1 to 65535, not 65536 (number 1 of 1)"},
		{func(r *Request) { r.PerNode, r.GPU = []int{AllGPUs}, false }, ""},
		{
			func(r *Request) { r.PerNode, r.Strategy = []int{AllGPUs}, StrictSpread },
			"STRICT_SPREAD puts one rank on a node and needs a number of ranks; auto takes whole nodes",
		},
		{func(r *Request) { r.Strategy = "PAK" }, `unknown strategy "PAK"; want STRICT_PACK, PACK, SPREAD or STRICT_SPREAD`},
		{func(r *Request) { r.Strategy = "pack" }, `unknown strategy "pack"; want STRICT_PACK, PACK, SPREAD or STRICT_SPREAD`},
		{func(r *Request) { r.Order.By = "rack" }, `unknown order "rack"; want ip, name, topology or list`},
		{func(r *Request) { r.Order.List = []string{"a"} }, `order "" takes no list of nodes; want "list"`},
		{func(r *Request) { r.Order.By = ByTopology }, ""},
		{
			func(r *Request) { r.Order = Order{By: ByTopology, List: []string{"a"}} },
			`order "topology" takes no list of nodes; want "list"`,
		},
		{func(r *Request) { r.Order = Order{By: ByList, List: []string{"a", "b", "a"}} }, "node a is twice in the order's list"},
		{
			func(r *Request) { r.MinNodes, r.Order = 2, Order{By: ByList, List: []string{"a"}} },
			"the order's list names 1 node, but the job needs 2",
		},
		{
			func(r *Request) { r.Strategy, r.Order = StrictSpread, Order{By: ByList, List: []string{"a", "b"}} },
			"the order's list names 2 nodes, but the job needs 8",
		},
		{func(r *Request) { r.Keep = map[string]int{"a": -1} }, "node a cannot keep node rank -1"},
		{func(r *Request) { r.Keep = map[string]int{"n10": 1, "n9": 1, "a": 0} }, "nodes n10 and n9 cannot both keep node rank 1"},
	} {
		r := Request{MinNodes: 1, MaxNodes: 2, PerNode: []int{8}, GPU: true}
		tt.change(&r)
		got := ""
		if err := r.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}
