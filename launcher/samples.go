package launcher

import (
	"context"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/progress"
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

// series asks again and again for what the ranks of a job do.
func (c *Client) series(job string) progress.Samples {
	return func(ctx context.Context) iter.Seq2[[]report.Series, error] {
		return func(yield func([]report.Series, error) bool) {
			c.Samples(ctx, SampleQuery{Job: job, Every: time.Second})(func(n NodeSamples, err error) bool { return yield(n.Series, err) })
		}
	}
}

// seriesHere is series of the job's own coordinator, which it reaches by its socket.
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
