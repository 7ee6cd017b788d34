package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// Endpoints are where a controller reaches the ranks of a job whose Ranks.Endpoint is set, by TLS
// with the cluster's token: HOST:PORT, by node. The error names the nodes that do not say so within
// a limit; the others are there beside it.
func (c *Client) Endpoints(ctx context.Context, job string, within time.Duration) (map[string]string, error) {
	endpoints, missing := map[string]string{}, []string(nil)
	for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutEndpoint}}) {
		if err != nil {
			return endpoints, refusalOf(err)
		}
		if a.Missing != "" {
			missing = append(missing, a.Missing)
			continue
		}
		endpoints[a.Node] = string(a.Facts)
	}
	if n := len(missing); n > 0 {
		return endpoints, fmt.Errorf("%d nodes do not say where their workers are reached: %s", n, strings.Join(missing[:min(n, 8)], "; "))
	}
	return endpoints, nil
}

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
			if !yield(n, refusalOf(err)) || err != nil {
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

// Stacks is where the ranks of a job are in their programs: one tree of the Python stacks of all
// their processes, in which ranks that are at the same place are one. As JSON it is what
// docs/json.md says.
type Stacks struct {
	tree stacks.Tree
	// Missing are the nodes that did not answer, each in a sentence.
	Missing []string
}

// Text writes the tree for a terminal of that many columns, the places of the fewest ranks first.
func (s Stacks) Text(w io.Writer, width int) error { return s.tree.Text(w, width) }

// MarshalJSON writes the tree.
func (s Stacks) MarshalJSON() ([]byte, error) {
	return jsonout.Marshal(struct {
		stacks.Tree
		Silent []string `json:"silent_nodes"`
	}{s.tree, s.Missing})
}

// Ranks is how many are in the tree, and Processes how many processes.
func (s Stacks) Ranks() (ranks, processes int) { return s.tree.Ranks.Len(), s.tree.Processes }

// Stacks looks into the processes of a job that runs, on all nodes at once and without stopping
// them, for as long as within allows.
func (c *Client) Stacks(ctx context.Context, job string, within time.Duration) (Stacks, error) {
	var all []stacks.Sample
	var s Stacks
	for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutStacks}}) {
		switch {
		case err != nil:
			return s, refusalOf(err)
		case a.Missing != "":
			s.Missing = append(s.Missing, a.Missing)
			continue
		}
		sample, err := stacks.Decode(a.Facts)
		if err != nil {
			s.Missing = append(s.Missing, "node "+a.Node+": "+err.Error())
			continue
		}
		all = append(all, sample)
	}
	s.tree = stacks.Merge(all, stacks.MergeOptions{})
	return s, nil
}
