package launcher

import (
	"context"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
)

// SampleQuery chooses among what the nodes of a cluster measure.
type SampleQuery struct {
	// Job is the only job whose nodes and ranks count; empty for all. Nodes are asked; all when
	// empty.
	Job   string
	Nodes []string
	// Since leaves out older samples, except the newest of each series.
	Since time.Duration
	// Every is how often newer samples follow, until the end of the job or of ctx; at least 1s. 0
	// is one answer of each node.
	Every time.Duration
	// Within bounds the wait for nodes that do not answer, which then have Missing; 0 waits. With
	// Every, late answers may still follow.
	Within time.Duration
}

// NodeSamples is what one node has measured, or a part of it.
type NodeSamples struct {
	Node string
	// Now is the node's clock, which all times are of.
	Now    time.Time
	Series []report.Series
	// Missing says why there are none.
	Missing string
}

// Samples asks nodes what they and their ranks do. Nodes send nothing of it, and the coordinator
// keeps nothing, unless it is asked for. An error comes last.
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

// Pong is a node's answer to a Ping.
type Pong struct {
	Node string
	// After is how long the answer took, through the coordinator. Missing says why there is none.
	After   time.Duration
	Missing string
}

// Ping asks the nodes of a job, or all when it is empty, for an answer without cost, and waits for
// them within a limit.
func (c *Client) Ping(ctx context.Context, job string, within time.Duration) iter.Seq2[Pong, error] {
	return func(yield func(Pong, error) bool) {
		began := time.Now()
		for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutPing}}) {
			if !yield(Pong{a.Node, time.Since(began), a.Missing}, refusalOf(err)) {
				return
			}
		}
	}
}
