package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/wire"
)

// GPUs asks the nodes of a job whose memory their GPUs have in use, by NVML and at this moment, and
// waits for them within a limit. Each GPU, or MIG instance, has one series as a whole, without a
// PID, whose GPUMemory has what the driver keeps for itself too; and one for each process with a
// compute context there, those with the most memory first and 16 at most. Their Job is empty for a
// process that is no rank of the node's agent. What the driver does not tell is NaN: in a container
// it tells no processes, or the pids of the host. A node without a driver has none.
func (c *Client) GPUs(ctx context.Context, job string, within time.Duration) iter.Seq2[NodeSamples, error] {
	return func(yield func(NodeSamples, error) bool) {
		for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutGPUs}}) {
			n := NodeSamples{Node: a.Node, Now: time.Now(), Missing: a.Missing}
			if err == nil && a.Missing == "" {
				var found []wire.GPU
				if err = json.Unmarshal(a.Facts, &found); err != nil {
					err = fmt.Errorf("read what node %s says of its GPUs: %w; install the same golaunch on all nodes", a.Node, err)
				}
				for _, g := range found {
					n.Series = append(n.Series, gpuSeries(g, n.Now)...)
				}
			}
			if !yield(n, asked(err)) || err != nil {
				return
			}
		}
	}
}

func gpuSeries(g wire.GPU, now time.Time) []Series {
	of := func(s Series, bytes, total int64) Series {
		v := samples.None()
		if bytes >= 0 {
			v[samples.GPUMemory] = float64(bytes)
		}
		if total > 0 {
			v[samples.GPUMemoryTotal] = float64(total)
		}
		s.GPU, s.Samples = g.UUID, []Sample{{At: now, Usage: usageOf(v)}}
		return s
	}
	all := []Series{of(Series{Rank: -1}, g.Used, g.Total)}
	for _, h := range g.Holders {
		all = append(all, of(Series{Job: h.Job, Rank: h.Rank, PID: h.PID}, h.Bytes, 0))
	}
	return all
}
