package gpu

import (
	"context"
	"fmt"
	"runtime"
	"strconv"

	"github.com/golaunch/golaunch/placement"
)

// TorchRanks reads torchrun's --nproc-per-node (torch/distributed/run.py,
// determine_local_world_size): gpu means every GPU of a node, cpu a rank for each CPU, and auto the
// GPUs if this machine has any and otherwise the CPUs. A number means that many ranks, each with a
// GPU if this machine has any.
func TorchRanks(ctx context.Context, text string) (perNode []int, gpus bool, err error) {
	if text == "cpu" {
		return []int{runtime.NumCPU()}, false, nil
	}
	n, err := strconv.Atoi(text)
	if text != "gpu" && text != "auto" && (err != nil || n < 1) {
		return nil, false, fmt.Errorf("%q: a number of at least 1, gpu, cpu or auto", text)
	}
	devices, why, err := List(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case text == "gpu" && len(devices) == 0:
		return nil, false, fmt.Errorf("gpu: this machine has none: %s", why)
	case text == "auto" && len(devices) == 0:
		return []int{runtime.NumCPU()}, false, nil
	case n == 0:
		return []int{placement.AllGPUs}, true, nil
	}
	return []int{n}, len(devices) > 0, nil
}
