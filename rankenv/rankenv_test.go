package rankenv_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// eight returns the facts about the rank with this local rank on the second of two nodes with 8
// GPUs.
func eight(localRank int) rankenv.Facts {
	gpus := make([]placement.GPU, 8)
	for i := range gpus {
		gpus[i] = placement.GPU{Index: i, UUID: fmt.Sprintf("GPU-%d", i)}
	}
	return rankenv.Facts{
		JobID: "j1", NodeName: "n1", Rank: 8 + localRank, LocalRank: localRank, WorldSize: 16, LocalWorldSize: 8,
		NodeRank: 1, Nodes: 2, MasterAddr: "fd00::1", MasterPort: 29500, Attempt: 2, MaxRestarts: 3,
		GPUs: gpus, GPU: &gpus[localRank], ErrorFile: "/log/error.json",
	}
}

func TestVars(t *testing.T) {
	some := []placement.GPU{{Index: 4, UUID: "GPU-a"}, {Index: 6, UUID: "GPU-b"}}
	mig := []placement.GPU{{Index: 0, UUID: "MIG-a"}, {Index: 0, UUID: "MIG-b"}}
	declared := []placement.GPU{{Index: 0}, {Index: 1}}
	for name, c := range map[string]struct {
		edit func(*rankenv.Facts)
		want string
	}{
		"the store is rank 0's": {func(*rankenv.Facts) {}, "TORCHELASTIC_USE_AGENT_STORE=False"},
		"the store is golaunch's": {
			func(f *rankenv.Facts) { f.StoreHosted = true }, "TORCHELASTIC_USE_AGENT_STORE=True",
		},
		"there are no proxies": {func(f *rankenv.Facts) { f.StoreHosted = true }, "MASTER_PORT=29500 -GOLAUNCH_MASTER_ADDR -GOLAUNCH_MASTER_PORT"},
		"the store is behind a proxy": {
			func(f *rankenv.Facts) {
				f.StoreHosted, f.Proxied, f.ProxyAddr, f.ProxyPort = true, true, "fd00::2", 20001
			},
			"MASTER_ADDR=fd00::2 MASTER_PORT=20001 GOLAUNCH_MASTER_ADDR=fd00::1 GOLAUNCH_MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
		},
		"others have proxies": {
			func(f *rankenv.Facts) { f.StoreHosted, f.Proxied = true, true },
			"MASTER_ADDR=fd00::1 MASTER_PORT=29500 GOLAUNCH_MASTER_ADDR=fd00::1 GOLAUNCH_MASTER_PORT=29500",
		},
		"IPv6 has no brackets": {func(*rankenv.Facts) {}, "MASTER_ADDR=fd00::1"},
		"attempt":              {func(*rankenv.Facts) {}, "TORCHELASTIC_RESTART_COUNT=2 GOLAUNCH_ATTEMPT=2"},
		"node rank":            {func(*rankenv.Facts) {}, "GROUP_RANK=1 NODE_RANK=1 NNODES=2 GROUP_WORLD_SIZE=2"},
		"role":                 {func(f *rankenv.Facts) { f.Role = "actor" }, "ROLE_NAME=actor ROLE_RANK=11 ROLE_WORLD_SIZE=16"},
		"all GPUs": {
			func(*rankenv.Facts) {},
			"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 CUDA_DEVICE_ORDER=PCI_BUS_ID LOCAL_RANK=3 GOLAUNCH_GPU_UUID=GPU-3",
		},
		"some GPUs": {
			func(f *rankenv.Facts) { f.GPUs, f.GPU, f.LocalRank = some, &some[1], 1 },
			"CUDA_VISIBLE_DEVICES=4,6 LOCAL_RANK=1 GOLAUNCH_GPU_UUID=GPU-b",
		},
		"own GPU": {
			func(f *rankenv.Facts) { f.GPUs, f.GPU, f.Visibility = some, &some[1], rankenv.SeeOwn },
			"CUDA_VISIBLE_DEVICES=6 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 RANK=11",
		},
		"MIG":     {func(f *rankenv.Facts) { f.GPUs, f.GPU = mig, &mig[0] }, "CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"},
		"own MIG": {func(f *rankenv.Facts) { f.GPU, f.Visibility = &mig[1], rankenv.SeeOwn }, "CUDA_VISIBLE_DEVICES=MIG-b"},
		"declared GPU": {
			func(f *rankenv.Facts) { f.GPUs, f.GPU = declared, &declared[0] },
			"CUDA_VISIBLE_DEVICES=0,1 -GOLAUNCH_GPU_UUID",
		},
		"half a GPU": {
			func(f *rankenv.Facts) {
				f.GPU, f.Visibility, f.PerGPU, f.GPUMemory = &some[1], rankenv.SeeOwn, 2, 80<<30
			},
			"CUDA_VISIBLE_DEVICES=6 LOCAL_RANK=0 GOLAUNCH_GPU_SHARE=0.5 -CUDA_MPS_ACTIVE_THREAD_PERCENTAGE -CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
		},
		"half a GPU with MPS": {
			func(f *rankenv.Facts) {
				f.GPU, f.Visibility, f.PerGPU, f.GPUMemory, f.MPS = &some[1], rankenv.SeeOwn, 2, 80<<30, true
			},
			"CUDA_VISIBLE_DEVICES=GPU-b GOLAUNCH_GPU_SHARE=0.5 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M",
		},
		"a third of a declared GPU with MPS": {
			func(f *rankenv.Facts) { f.GPU, f.Visibility, f.PerGPU, f.MPS = &declared[1], rankenv.SeeOwn, 3, true },
			"CUDA_VISIBLE_DEVICES=1 GOLAUNCH_GPU_SHARE=0.3333333333333333 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 -CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
		},
		"a whole GPU with MPS": {
			func(f *rankenv.Facts) { f.GPUs, f.GPU, f.PerGPU, f.MPS = some, &some[1], 1, true },
			"CUDA_VISIBLE_DEVICES=4,6 -GOLAUNCH_GPU_SHARE -CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
		},
		"CPU rank": {
			func(f *rankenv.Facts) { f.GPUs, f.GPU, f.Visibility = nil, nil, rankenv.SeeOwn },
			"LOCAL_RANK=0 -CUDA_VISIBLE_DEVICES -CUDA_DEVICE_ORDER -GOLAUNCH_GPU_UUID",
		},
		"many ranks on a node": {func(*rankenv.Facts) {}, "OMP_NUM_THREADS=1"},
		"one rank on a node":   {func(f *rankenv.Facts) { f.LocalWorldSize = 1 }, "-OMP_NUM_THREADS -GOLAUNCH_CPUS"},
		"cores of its own": {
			func(f *rankenv.Facts) { f.CPUs, f.Bound, f.Cores = "0-1,4-5", "2 of 4 cores of NUMA node 0", 2 },
			"OMP_NUM_THREADS=2 GOLAUNCH_CPUS=0-1,4-5",
		},
		"CPUs shared with others": {
			func(f *rankenv.Facts) { f.CPUs, f.Bound = "0-7", "NUMA node 0" }, "OMP_NUM_THREADS=1 GOLAUNCH_CPUS=0-7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := eight(3)
			c.edit(&f)
			check(t, rankenv.Merge(rankenv.Layers{}).Environ(f), c.want)
		})
	}
}

// check checks an environment against the words of want: it must have each NAME=value, and must not
// have the variable NAME of a word -NAME.
func check(t *testing.T, environ []string, want string) {
	t.Helper()
	env := asMap(t, environ)
	for w := range strings.FieldsSeq(want) {
		if name, ok := strings.CutPrefix(w, "-"); ok {
			if value, set := env[name]; set {
				t.Errorf("%s is set to %q", name, value)
			}
		} else if !slices.Contains(environ, w) {
			name, _, _ := strings.Cut(w, "=")
			t.Errorf("%s=%s, want %s", name, env[name], w)
		}
	}
}

func TestEveryVarSaysWhy(t *testing.T) {
	for _, v := range rankenv.Vars(eight(0)) {
		if v.Name == "" || v.Source == "" || v.Reason == "" {
			t.Errorf("%+v lacks something", v)
		}
	}
}

func TestPrecedence(t *testing.T) {
	user := func(name string) []rankenv.Var {
		return []rankenv.Var{{Name: name, Value: "user", Source: rankenv.User}}
	}
	preset := func(name string) []rankenv.Var {
		return []rankenv.Var{{Name: name, Value: "preset", Source: rankenv.Preset}}
	}
	for name, c := range map[string]struct {
		layers  rankenv.Layers
		want    string
		presets []rankenv.Var
	}{
		"user beats inherited": {rankenv.Layers{User: user("A"), Inherited: []string{"A=inherited"}}, "A=user", nil},
		"user beats a fact":    {rankenv.Layers{User: user("RANK")}, "RANK=user", nil},
		"the last of the user's wins": {rankenv.Layers{User: append([]rankenv.Var{
			{Name: "A", Value: "first", Source: rankenv.User},
		}, user("A")...)}, "A=user", nil},
		"a fact beats inherited": {
			rankenv.Layers{Inherited: []string{"RANK=0", "MASTER_ADDR=x", "CUDA_VISIBLE_DEVICES=7", "NODE_RANK=9"}},
			"RANK=11 MASTER_ADDR=fd00::1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NODE_RANK=1", nil,
		},
		"a fact beats a preset": {rankenv.Layers{}, "RANK=11", preset("RANK")},
		"a fact beats inherited with --keep-env": {
			rankenv.Layers{Inherited: []string{"RANK=0", "TORCHELASTIC_RESTART_COUNT=9"}, KeepEnv: true},
			"RANK=11 TORCHELASTIC_RESTART_COUNT=2", nil,
		},
		"inherited beats a preset": {
			rankenv.Layers{Inherited: []string{"NCCL_SOCKET_IFNAME=inherited"}},
			"NCCL_SOCKET_IFNAME=inherited", preset("NCCL_SOCKET_IFNAME"),
		},
		"inherited beats a default": {
			rankenv.Layers{Inherited: []string{"OMP_NUM_THREADS=6", "TORCH_NCCL_ASYNC_ERROR_HANDLING=", "PYTHONUNBUFFERED=0"}},
			"OMP_NUM_THREADS=6 TORCH_NCCL_ASYNC_ERROR_HANDLING= PYTHONUNBUFFERED=0", nil,
		},
		"a preset beats a default": {rankenv.Layers{}, "OMP_NUM_THREADS=preset", preset("OMP_NUM_THREADS")},
	} {
		t.Run(name, func(t *testing.T) { check(t, rankenv.Merge(c.layers).With(c.presets).Environ(eight(3)), c.want) })
	}
}

const foreignEnv = `PMI_RANK=1 PMI2_X=1 PMIX_RANK=1 HYDI_CONTROL_FD=8 MPI_LOCALRANKID=1 OMPI_COMM_WORLD_RANK=1
	MV2_COMM_WORLD_RANK=1 MVP_COMM_WORLD_RANK=1 MPISPAWN_ID=1 PALS_RANKID=1 JSM_NAMESPACE_RANK=1
	LSF_PM_TASKID=2 PBS_TASKNUM=2 PBS_NODENUM=1 PBS_VNODENUM=1 FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2
	FLUX_PMI_LIBRARY_PATH=/usr/lib/flux/libpmi.so SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NTASKS=2
	SLURM_NTASKS_PER_NODE=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_CPU_BIND_TYPE=x PET_NNODES=2
	TORCHELASTIC_TIMER_FILE=x GOLAUNCH_GRACE=3s`

func TestForeign(t *testing.T) {
	kept := []string{
		"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NNODES=2", "NCCL_DEBUG=INFO", "HOME=/root", "PMIX=1",
		"PBS_JOBID=7", "PBS_NODEFILE=/n", "LSB_JOBID=7", "LSB_DJOB_RANKFILE=/n", "FLUX_JOB_ID=f7", "FLUX_JOB_NNODES=2", "SM_HOSTS=[]",
		"JOB_COMPLETION_INDEX=1", "LWS_WORKER_INDEX=1", "VC_TASK_INDEX=1", "AWS_BATCH_JOB_NODE_INDEX=1",
	}
	never := []string{"GOLAUNCH_TOKEN=s3cret", "GOLAUNCH_TOKEN_FILE=/s3cret", "junk"}
	inherited := slices.Concat(kept, strings.Fields(foreignEnv), never)

	e := rankenv.Merge(rankenv.Layers{Inherited: inherited}).Explain(eight(0))
	dropped := map[string]rankenv.Var{}
	for _, v := range e.Dropped {
		dropped[v.Name] = v
		if v.Reason == "" || strings.Contains(v.Value+v.Reason, "s3cret") {
			t.Errorf("dropped %+v: want a reason and no secret", v)
		}
	}
	var gone strings.Builder
	for _, pair := range inherited[len(kept):] {
		name, _, _ := strings.Cut(pair, "=")
		fmt.Fprintf(&gone, "-%s ", name)
		if dropped[name].Source != rankenv.Inherited {
			t.Errorf("%s is not among what was dropped", name)
		}
	}
	check(t, pairs(e.Vars), strings.Join(kept, " ")+" "+gone.String())

	keeping := rankenv.Merge(rankenv.Layers{Inherited: inherited, KeepEnv: true}).Environ(eight(0))
	check(t, keeping, foreignEnv+" -GOLAUNCH_TOKEN -GOLAUNCH_TOKEN_FILE -junk")
}

func TestExplainNamesTheSource(t *testing.T) {
	e := rankenv.Merge(rankenv.Layers{
		User:      []rankenv.Var{{Name: "RANK", Value: "5", Source: rankenv.User, Reason: "--env"}},
		Inherited: []string{"RANK=7", "WORLD_SIZE=8"},
	}).Explain(eight(3))
	got := ""
	for _, v := range e.Dropped {
		got += fmt.Sprintf("%s %s=%s: %s\n", v.Source, v.Name, v.Value, v.Reason)
	}
	want := "inherited RANK=7: overridden by user RANK=5\n" +
		"torch RANK=11: overridden by user RANK=5\n" +
		"inherited WORLD_SIZE=8: overridden by torch WORLD_SIZE=16\n"
	if got != want {
		t.Errorf("dropped:\n%swant:\n%s", got, want)
	}
}

// TestExplainIsEnviron checks, for arbitrary layers, that Explain and Environ return the same
// environment.
func TestExplainIsEnviron(t *testing.T) {
	names := rapid.SampledFrom([]string{"A", "B", "RANK", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PMI_RANK", "PYTHONUNBUFFERED"})
	rapid.Check(t, func(t *rapid.T) {
		vars := func(s rankenv.Source) *rapid.Generator[[]rankenv.Var] {
			return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rankenv.Var {
				return rankenv.Var{Name: names.Draw(t, "name"), Value: rapid.StringN(0, 2, -1).Draw(t, "value"), Source: s}
			}), 0, 5)
		}
		l := rankenv.Layers{
			User:      vars(rankenv.User).Draw(t, "user"),
			Inherited: pairs(vars(rankenv.Inherited).Draw(t, "inherited")), KeepEnv: rapid.Bool().Draw(t, "keep"),
		}
		f := eight(rapid.IntRange(0, 7).Draw(t, "local rank"))
		if rapid.Bool().Draw(t, "cpu") {
			f.GPU = nil
		}
		presets := vars(rankenv.Preset).Draw(t, "presets")
		b := rankenv.Merge(l).With(presets)
		environ, e := b.Environ(f), b.Explain(f)
		slices.Sort(environ)
		explained := pairs(e.Vars)
		slices.Sort(explained)
		if !slices.Equal(environ, explained) {
			t.Fatalf("environ   %q\nexplained %q", environ, explained)
		}
		asMap(t, environ)
		if said, had := len(e.Vars)+len(e.Dropped), len(l.User)+len(presets)+len(l.Inherited)+len(rankenv.Vars(f)); said != had {
			t.Fatalf("%d variables are explained, of %d", said, had)
		}
	})
}

func pairs(vars []rankenv.Var) []string {
	out := make([]string, len(vars))
	for i, v := range vars {
		out[i] = v.Name + "=" + v.Value
	}
	return out
}

// BenchmarkNode makes the environments of 128 ranks, the largest expected number on a node, with
// 100 inherited variables.
func BenchmarkNode(b *testing.B) {
	inherited := make([]string, 100)
	for i := range inherited {
		inherited[i] = fmt.Sprintf("VARIABLE_%d=some value of usual length", i)
	}
	facts := make([]rankenv.Facts, 128)
	for i := range facts {
		facts[i] = eight(i % 8)
	}
	for b.Loop() {
		base := rankenv.Merge(rankenv.Layers{Inherited: inherited})
		for _, f := range facts {
			base.Environ(f)
		}
	}
}
