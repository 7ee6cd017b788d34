package rankenv_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// different has the variables whose values may differ from torchrun's, each with the reason.
var different = map[string]string{
	"MASTER_PORT":                    "whichever port was free",
	"TORCHELASTIC_ERROR_FILE":        "a path in the launcher's own log folder",
	"TORCHELASTIC_SIGNALS_TO_HANDLE": "torchrun's word to its own agent, which its workers inherit by accident; golaunch has none",
}

// added are the variables that torchrun does not set.
var added = map[string]string{
	"NODE_RANK":         "expected by many scripts",
	"NNODES":            "expected by many scripts",
	"GOLAUNCH_JOB":      "golaunch's own",
	"GOLAUNCH_NODE":     "golaunch's own",
	"GOLAUNCH_ATTEMPT":  "golaunch's own",
	"PYTHONUNBUFFERED":  "torchrun runs python -u instead",
	"CUDA_DEVICE_ORDER": "only for GPU ranks: makes the numbers in CUDA_VISIBLE_DEVICES mean what placement means",
}

// TestGolden compares the environments of ranks with those of the real torchrun 2.14, which
// testdata/torchrun-2.14/capture.sh has recorded.
func TestGolden(t *testing.T) {
	minimal := []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "USE_LIBUV=0"}
	inherited := []string{
		"RANK=7", "WORLD_SIZE=8", "OMP_NUM_THREADS=6", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "CUDA_VISIBLE_DEVICES=4,5",
	}
	for _, shape := range []struct {
		name                        string
		nodes, perNode, maxRestarts int
		inherited                   []string
		own                         bool
	}{
		{name: "1x1", nodes: 1, perNode: 1},
		{name: "1x4", nodes: 1, perNode: 4, maxRestarts: 3},
		{name: "2x2", nodes: 2, perNode: 2, maxRestarts: 3},
		{name: "inherited", nodes: 1, perNode: 2, inherited: inherited},
		{name: "virtual", nodes: 1, perNode: 2, own: true},
	} {
		base := rankenv.Merge(rankenv.Layers{Inherited: slices.Concat(minimal, shape.inherited)})
		for rank := range shape.nodes * shape.perNode {
			t.Run(fmt.Sprintf("%s/rank%d", shape.name, rank), func(t *testing.T) {
				f := rankenv.Facts{
					JobID: "golden", NodeName: "n0",
					Rank: rank, LocalRank: rank % shape.perNode, WorldSize: shape.nodes * shape.perNode, LocalWorldSize: shape.perNode,
					NodeRank: rank / shape.perNode, Nodes: shape.nodes,
					MasterAddr: "127.0.0.1", MasterPort: 29500, StoreHosted: true,
					MaxRestarts: shape.maxRestarts, ErrorFile: "/log/error.json",
				}
				if shape.own {
					f.GPUs = []placement.GPU{{Index: 0}, {Index: 1}}
					f.GPU, f.Visibility = &f.GPUs[f.LocalRank], rankenv.SeeOwn
				}
				compare(t, base.Environ(f), load(t, filepath.Join("testdata/torchrun-2.14", shape.name, fmt.Sprintf("rank%d.json", rank))))
			})
		}
	}
}

func compare(t *testing.T, environ []string, want map[string]string) {
	t.Helper()
	got := asMap(t, environ)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		value, ok := want[name]
		switch {
		case !ok && added[name] == "":
			t.Errorf("%s=%s: torchrun does not set it", name, got[name])
		case ok && value != got[name] && different[name] == "":
			t.Errorf("%s=%s, want torchrun's %s", name, got[name], value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok && name != "TORCHELASTIC_SIGNALS_TO_HANDLE" {
			t.Errorf("%s is missing, torchrun sets it to %s", name, want[name])
		}
	}
}

func load(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if err := json.Unmarshal(text, &env); err != nil {
		t.Fatal(err)
	}
	return env
}

// asMap returns an environment as a map. It fails the test if a name occurs twice, because some
// programs would use the first value, and others the second.
func asMap(t rapid.TB, environ []string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, pair := range environ {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := env[name]; twice || !ok {
			t.Errorf("%q comes twice, or has no value", pair)
		}
		env[name] = value
	}
	return env
}
