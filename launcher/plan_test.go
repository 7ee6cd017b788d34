package launcher_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

func declared(name, addr string, gpus int) placement.Node {
	n := placement.Node{Name: name, Addr: netip.MustParseAddr(addr)}
	for i := range gpus {
		n.GPUs = append(n.GPUs, placement.GPU{Index: i})
	}
	return n
}

func gpuJob(nodes int, perNode ...int) launcher.Job {
	return launcher.Job{
		Command:   []string{"python3", "train.py"},
		Resources: launcher.Resources{MinNodes: nodes, MaxNodes: nodes, PerNode: perNode, GPU: true},
	}
}

// text returns a plan as words "node rank:node:first rank-last rank".
func text(p placement.Plan) string {
	var groups []string
	for _, g := range p.Groups {
		groups = append(groups, fmt.Sprintf("%d:%s:%d-%d", g.NodeRank, g.Node.Name, g.Bundles[0].Rank, g.Bundles[len(g.Bundles)-1].Rank))
	}
	return strings.Join(groups, " ")
}

func TestPlan(t *testing.T) {
	a, b, c := declared("a", "10.0.0.10", 8), declared("b", "10.0.0.9", 8), declared("c", "10.0.0.11", 2)
	spares := gpuJob(2, 8)
	spares.Resources.Spares = 1
	simulated := gpuJob(1, placement.AllGPUs)
	simulated.Resources.Simulate = true
	for _, test := range []struct {
		name  string
		job   launcher.Job
		nodes []placement.Node
		want  string
	}{
		{"by address, as numbers", gpuJob(2, 8), []placement.Node{a, b}, "0:b:0-7 1:a:8-15"},
		{"the first that fit", gpuJob(2, 4), []placement.Node{a, b, c}, "0:b:0-3 1:a:4-7"},
		{"a list", gpuJob(3, 4, 8, 2), []placement.Node{a, b, c}, "0:b:0-3 1:a:4-11 2:c:12-13"},
		{"imagined", gpuJob(2, 8), nil, "0:node0:0-7 1:node1:8-15"},
		{"imagined, with a spare", spares, nil, "0:node0:0-7 1:node1:8-15"},
		{"simulated, all GPUs", simulated, nil, "0:node0:0-7"},
	} {
		p, err := launcher.Plan(t.Context(), test.job, test.nodes...)
		if err != nil || text(p) != test.want {
			t.Errorf("%s: %s (%v), want %s", test.name, text(p), err, test.want)
		}
	}
}

func TestPlanThatDoesNotFit(t *testing.T) {
	_, err := launcher.Plan(t.Context(), gpuJob(2, 8), declared("a", "10.0.0.1", 8), declared("b", "10.0.0.2", 4))
	var why *placement.InfeasibleError
	if !errors.As(err, &why) || len(why.Nodes) != 1 || why.Nodes[0].Node != "b" || errors.Is(err, launcher.ErrUsage) {
		t.Errorf("%v, want an InfeasibleError that names b", err)
	}
}

// explained returns the variable with a name.
func explained(vars []rankenv.Var, name string) rankenv.Var {
	if i := slices.IndexFunc(vars, func(v rankenv.Var) bool { return v.Name == name }); i >= 0 {
		return vars[i]
	}
	return rankenv.Var{}
}

func TestExplain(t *testing.T) {
	for name, value := range map[string]string{
		"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "RANK": "99", "SLURM_PROCID": "5", "PMIX_RANK": "6", "FROM_OUTSIDE": "kept",
		"MASTER_ADDR": "inherited", "GOLAUNCH_TOKEN": strings.Repeat("k", 32),
	} {
		t.Setenv(name, value)
	}
	job := gpuJob(2, 2)
	job.ID = "j"
	job.Env = []string{"MASTER_ADDR=10.9.9.9", "LOCAL_RANK=7", "FROM_OUTSIDE", "PYTHONUNBUFFERED=0"}
	plan, err := launcher.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	env, err := job.Explain(plan, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []rankenv.Var{
		{Name: "MASTER_ADDR", Value: "10.9.9.9", Source: rankenv.User},
		{Name: "LOCAL_RANK", Value: "7", Source: rankenv.User},
		{Name: "FROM_OUTSIDE", Value: "kept", Source: rankenv.User},
		{Name: "PYTHONUNBUFFERED", Value: "0", Source: rankenv.User},
		{Name: "NCCL_DEBUG", Value: "INFO", Source: rankenv.Inherited},
		{Name: "OMP_NUM_THREADS", Value: "4", Source: rankenv.Inherited},
		{Name: "RANK", Value: "3", Source: rankenv.Torch},
		{Name: "WORLD_SIZE", Value: "4", Source: rankenv.Torch},
		{Name: "TORCHELASTIC_RUN_ID", Value: "j", Source: rankenv.Torch},
		{Name: "NODE_RANK", Value: "1", Source: rankenv.Golaunch},
		{Name: "CUDA_VISIBLE_DEVICES", Value: "0,1", Source: rankenv.Golaunch},
		{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Value: "1", Source: rankenv.Default},
	} {
		got := explained(env.Vars, want.Name)
		if want.Reason = got.Reason; got != want || got.Reason == "" {
			t.Errorf("%+v, want %+v with a reason", got, want)
		}
	}
	for _, name := range []string{"SLURM_PROCID", "PMIX_RANK", "GOLAUNCH_TOKEN", "RANK"} {
		if got := explained(env.Dropped, name); got.Reason == "" {
			t.Errorf("%s is not told to be dropped", name)
		}
	}
	for _, v := range slices.Concat(env.Vars, env.Dropped) {
		if strings.Contains(v.Value, "kkkk") {
			t.Errorf("%s shows the token", v.Name)
		}
	}
	job.Ranks.KeepEnv = true
	if env, err = job.Explain(plan, 3); err != nil {
		t.Fatal(err)
	}
	if got := explained(env.Vars, "SLURM_PROCID"); got.Value != "5" || got.Source != rankenv.Inherited {
		t.Errorf("KeepEnv: %+v, want the inherited SLURM_PROCID", got)
	}
	if _, err := job.Explain(plan, 4); !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), "0 to 3") {
		t.Errorf("rank 4 of 4: %v, want ErrUsage and the ranks there are", err)
	}
}

// TestExplainIsWhatRunsGet compares the variables that Explain returns with those that the ranks of
// a job get.
func TestExplainIsWhatRunsGet(t *testing.T) {
	job, out, _ := marked(t, 2, `[ $RANK = 0 ] || env`)
	job.Resources.Simulate, job.Resources.GPU, job.ID, job.Ranks.MasterPort = true, true, "j", 29999
	job.Output.Prefix = new(false)
	if _, err := launcher.Run(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	plan, err := launcher.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	env, err := job.Explain(plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.Split(out.String(), "\n")
	for _, v := range env.Vars {
		if v.Name == "TORCHELASTIC_ERROR_FILE" || v.Name == "_" || strings.Contains(v.Value, "\n") {
			continue
		}
		if !slices.Contains(seen, v.Name+"="+v.Value) {
			t.Errorf("the rank does not see %s=%s (%s)", v.Name, v.Value, v.Source)
		}
	}
}
