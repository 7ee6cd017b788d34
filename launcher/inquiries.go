package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/internal/progress"
	"github.com/golaunch/golaunch/launcher/report"
)

// SampleQuery chooses among the samples that the nodes of a cluster have.
type SampleQuery struct {
	// Job is the job whose nodes and ranks are asked for; empty for all jobs. Nodes are the nodes
	// to ask; all when empty.
	Job   string
	Nodes []string
	// Since leaves out older samples, except the newest of each series.
	Since time.Duration
	// Every is the time between two answers of a node, at least 1s. Nodes then answer until the job
	// or ctx ends. With 0, each node answers once.
	Every time.Duration
	// Within bounds the wait for the first answer of each node; 0 sets no bound. A node that is
	// late gets a NodeSamples with Missing. If Every is set, its answers may still follow.
	Within time.Duration
}

// NodeSamples is what one node has measured, or a part of it.
type NodeSamples struct {
	Node string
	// Now is the present time by the node's clock. All times of the samples are by this clock.
	Now    time.Time
	Series []report.Series
	// Missing says why there are no samples.
	Missing string
}

// Samples asks nodes for samples of themselves and of their ranks. Nodes send samples only on
// request, and the coordinator keeps none. If there is an error, it is the last value.
func (c *Client) Samples(ctx context.Context, q SampleQuery) iter.Seq2[NodeSamples, error] {
	inquiry := wire.Inquiry{
		Job: q.Job, Nodes: q.Nodes, Within: q.Within,
		Question: wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Since: q.Since, Every: q.Every}},
	}
	return func(yield func(NodeSamples, error) bool) {
		for a, err := range c.head.Inquire(ctx, inquiry) {
			n := NodeSamples{Node: a.Node, Missing: a.Missing}
			if a.Samples != nil {
				n.Now, n.Series = a.Samples.Now, a.Samples.Series
			}
			if !yield(n, refusalOf(err)) {
				return
			}
		}
	}
}

// series returns a function that asks for samples of the ranks of a job, once a second.
func (c *Client) series(job string) progress.Samples {
	return func(ctx context.Context) iter.Seq2[[]report.Series, error] {
		return func(yield func([]report.Series, error) bool) {
			c.Samples(ctx, SampleQuery{Job: job, Every: time.Second})(func(n NodeSamples, err error) bool { return yield(n.Series, err) })
		}
	}
}

// seriesHere does what series does, but asks the job's own coordinator through its socket on this
// machine.
func seriesHere(job string) progress.Samples {
	return func(ctx context.Context) iter.Seq2[[]report.Series, error] {
		return func(yield func([]report.Series, error) bool) {
			c, err := connectLocal(ctx, job)
			if err != nil {
				yield(nil, err)
				return
			}
			defer c.Close()
			c.series(job)(ctx)(yield)
		}
	}
}

// ask asks the nodes of a job, or all nodes when job is empty, and waits for the answers within a
// limit.
func (c *Client) ask(ctx context.Context, job string, within time.Duration, about wire.About) iter.Seq2[wire.Answer, error] {
	return c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: about}})
}

// rasLimit bounds the wait for NCCL. It exceeds the agent's own limit.
const rasLimit = 20 * time.Second

// RAS asks the NCCL of a running job, for 20 s at most. Ask only about jobs in trouble: some
// versions of NCCL have crashed when asked (see nccl/dl).
func (c *Client) RAS(ctx context.Context, id string) (report.RAS, error) {
	for a, err := range c.ask(ctx, id, rasLimit, wire.AboutRAS) {
		if err != nil {
			return report.RAS{}, refusalOf(err)
		}
		if a.Missing != "" {
			return report.RAS{Why: a.Missing}, nil
		}
		var r report.RAS
		if err := json.Unmarshal(a.Facts, &r); err != nil {
			return report.RAS{}, fmt.Errorf("what node %s says of NCCL makes no sense: %w; install the same golaunch on all nodes", a.Node, err)
		}
		return r, nil
	}
	return report.RAS{Why: "no rank of the job runs"}, nil
}

// Pong is a node's answer to a Ping.
type Pong struct {
	Node string
	// After is how long the answer took, through the coordinator. Missing says why there is no
	// answer.
	After   time.Duration
	Missing string
}

// Ping asks the nodes of a job, or all nodes when job is empty, for an answer that needs no work.
// It waits for the answers within a limit.
func (c *Client) Ping(ctx context.Context, job string, within time.Duration) iter.Seq2[Pong, error] {
	return func(yield func(Pong, error) bool) {
		began := time.Now()
		for a, err := range c.ask(ctx, job, within, wire.AboutPing) {
			if !yield(Pong{a.Node, time.Since(began), a.Missing}, refusalOf(err)) {
				return
			}
		}
	}
}

// Endpoints returns the address, HOST:PORT, of each node of a job whose Ranks.Endpoint is set.
// There a controller reaches the job's ranks, by TLS with the cluster's token ([Client.TLS]). If
// nodes do not answer within a limit, Endpoints returns the other addresses, and an error that
// names these nodes.
func (c *Client) Endpoints(ctx context.Context, job string, within time.Duration) (map[string]string, error) {
	endpoints, missing := map[string]string{}, []string(nil)
	for a, err := range c.ask(ctx, job, within, wire.AboutEndpoint) {
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

// GPUs asks the nodes of a job, which ask NVML, how the memory of their GPUs is used now, and waits
// for the answers within a limit. Each GPU, or MIG instance, has a series without a PID for all its
// memory, the driver's own included. Each process with a compute context has a series too: at most
// 16 on each GPU, those with the most memory first. In a series, Job is empty if the process is no
// rank of the node's agent. Unknown values are NaN. In a container the driver names no processes,
// or gives the host's pids. A node without a driver has no series.
func (c *Client) GPUs(ctx context.Context, job string, within time.Duration) iter.Seq2[NodeSamples, error] {
	return func(yield func(NodeSamples, error) bool) {
		for a, err := range c.ask(ctx, job, within, wire.AboutGPUs) {
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

func gpuSeries(g wire.GPU, now time.Time) []report.Series {
	of := func(s report.Series, bytes, total int64) report.Series {
		v := report.Unmeasured()
		if bytes >= 0 {
			v.GPUMemory = float64(bytes)
		}
		if total > 0 {
			v.GPUMemoryTotal = float64(total)
		}
		s.GPU, s.Samples = g.UUID, []report.Sample{{At: now, Usage: v}}
		return s
	}
	all := []report.Series{of(report.Series{Rank: -1}, g.Used, g.Total)}
	for _, h := range g.Holders {
		all = append(all, of(report.Series{Job: h.Job, Rank: h.Rank, PID: h.PID}, h.Bytes, 0))
	}
	return all
}

// Stacks shows where the ranks of a job are in their programs: one tree of the Python stacks of all
// their processes, in which ranks at the same place are merged. docs/json.md describes its JSON.
type Stacks struct {
	tree stacks.Tree
	// Missing has a sentence for each node that did not answer.
	Missing []string
}

// Text writes the tree for a terminal of the given width in columns. Places with the fewest ranks
// come first.
func (s Stacks) Text(w io.Writer, width int) error { return s.tree.Text(w, width) }

// MarshalJSON writes the tree.
func (s Stacks) MarshalJSON() ([]byte, error) {
	return jsonout.Marshal(struct {
		stacks.Tree
		Silent []string `json:"silent_nodes"`
	}{s.tree, s.Missing})
}

// Ranks counts the ranks and the processes in the tree.
func (s Stacks) Ranks() (ranks, processes int) { return s.tree.Ranks.Len(), s.tree.Processes }

// Stacks reads the stacks of a running job on all nodes at once. It does not stop the ranks, and
// takes at most the time within.
func (c *Client) Stacks(ctx context.Context, job string, within time.Duration) (Stacks, error) {
	var all []stacks.Sample
	var s Stacks
	for a, err := range c.ask(ctx, job, within, wire.AboutStacks) {
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
