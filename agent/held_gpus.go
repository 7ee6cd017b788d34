package agent

import (
	"context"

	"github.com/golaunch/golaunch/agent/internal/heldgpus"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// watchHeldGPUs watches the GPUs that other processes held when this node was surveyed, and reports
// to the coordinator when they become free. A later membership joins with the updated GPUs.
func (m *membership) watchHeldGPUs() {
	held := heldgpus.Held(m.Join.Node.GPUs)
	if len(held) == 0 {
		return
	}
	w := heldgpus.Watch{
		Survey: func(ctx context.Context) ([]gpu.Device, error) {
			devices, _, err := gpu.Survey(ctx)
			return devices, err
		},
		Freed: func(gpus []placement.GPU) {
			m.report("", wire.Freed{GPUs: gpus})
			freed := job.Freed{GPUs: wire.Convert(gpus, func(g placement.GPU) int { return g.Index })}
			m.Join.Node.GPUs, _ = freed.Free(m.Join.Node.GPUs)
		},
		Warn: m.Warn,
	}
	m.queries.running.Go(func() { w.Run(m.queries.ctx, held) })
}
