// Package viewtest is a simulated cluster, for tests and pictures of programs that show a cluster.
package viewtest

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// Cluster is a cluster of Nodes with eight GPUs each, at a time: one job trains on all but the last
// eighth of the nodes, with rank Slow behind the others; one job has failed and starts again there;
// one job waits; one job is over. Everything follows from the time, so pictures of the cluster do
// not change.
type Cluster struct {
	Nodes int
	// Slow is a rank that draws less power and ends its steps late; when negative, no rank is slow.
	Slow int
	// SlowFrom is when the rank became slow; at the beginning when zero.
	SlowFrom time.Time
	// Still returns when a rank made its last step; zero for a rank that goes on. When Still is
	// nil, all ranks go on.
	Still func(rank int) time.Time
	// Now returns the time; the real time when nil.
	Now func() time.Time
	// Began is when the first job was submitted.
	Began time.Time
	// Every is the interval of samples; when 0, samples are sent once.
	Every time.Duration
	// Fails is the error of each request, unless it is nil.
	Fails func() error
	// Stopped has the jobs that were asked to stop.
	Stopped []string
}

const gpusPerNode = 8

func (c *Cluster) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Cluster) fails() error {
	if c.Fails != nil {
		return c.Fails()
	}
	return nil
}

// training is the number of nodes of the first job.
func (c *Cluster) training() int { return max(1, c.Nodes-c.Nodes/8) }

func (c *Cluster) node(i int) string { return fmt.Sprintf("gpu%04d", i) }

// charges returns the charges for nodes that jobs have held since the cluster began.
func (c *Cluster) charges() []report.Charge {
	hours := c.now().Sub(c.Began).Hours()
	of := func(user string, nodes int) report.Charge {
		return report.Charge{User: user, Kind: "h100-8", Price: 32.5, NodeHours: float64(nodes) * hours, GPUHours: float64(nodes*gpusPerNode) * hours}
	}
	idle := of("", 0)
	idle.Idle = true
	return []report.Charge{of("alice", c.training()), of("bob", c.Nodes-c.training()), idle}
}

// Query describes the cluster.
func (c *Cluster) Query(_ context.Context, q report.Query) (report.Status, error) {
	if err := c.fails(); err != nil {
		return report.Status{}, err
	}
	s := report.Status{Version: "v0.9.0", Since: c.Began}
	if q.Job == "" {
		s.Counted, s.Charges = c.Began, c.charges()
	}
	for i := range c.Nodes {
		n := report.NodeStatus{
			Name: c.node(i), Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), CPUs: 96, Memory: 2 << 40,
		}
		hold := report.Holding{Job: "llama-70b"}
		if i >= c.training() {
			hold.Job = "moe-ablation-3"
		}
		for g := range gpusPerNode {
			n.GPUs = append(n.GPUs, report.GPU{Index: g, UUID: fmt.Sprintf("GPU-%04d-%d", i, g)})
			hold.GPUs = append(hold.GPUs, g)
		}
		n.Holds = []report.Holding{hold}
		if i == c.Nodes-1 && i > 0 {
			n.Silent = 7 * time.Second
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, j := range c.jobs() {
		if q.Job == "" || q.Job == j.ID {
			s.Jobs = append(s.Jobs, j)
		}
	}
	if q.Job != "" && len(s.Jobs) == 0 {
		return report.Status{}, fmt.Errorf("there is no job %q here", q.Job)
	}
	return s, nil
}

func (c *Cluster) jobs() []report.JobStatus {
	var first, last []string
	for i := range c.Nodes {
		if i < c.training() {
			first = append(first, c.node(i))
		} else {
			last = append(last, c.node(i))
		}
	}
	at := func(minutes float64) time.Time { return c.Began.Add(time.Duration(minutes * float64(time.Minute))) }
	ranks := len(first) * gpusPerNode
	jobs := []report.JobStatus{{
		ID: "llama-70b", Title: "python train.py --config 70b.yaml", Phase: "running", Waits: fmt.Sprintf("%d ranks to end", ranks),
		Submitted: c.Began, Attempt: 1, Restarts: 1, MaxRestarts: 3, Nodes: first, Ranks: ranks, GPUs: ranks,
		Goodput: &report.Goodput{
			Unit: "GPU", Goodput: 0.971, Hours: 512, Training: 497.1, Lost: 5.2, Starting: 4.1, Stopping: 0.6, Backoff: 0.2, Waiting: 4.8,
			Interruptions: 1, Costs: []report.Cost{{Cause: "gpu-lost", Node: c.node(0), Interruptions: 1, Hours: 9.7, Lost: 5.2}},
		},
		Saves: &report.Saves{Last: &report.Save{
			Path: "/checkpoints/llama-70b/step-1000", Format: "dcp", Step: 1000, Bytes: 840 << 30, Began: at(9), Ended: at(9.5),
		}, Every: 600, AtRisk: 83},
		History: []report.Moment{
			{At: at(0), Attempt: 0, To: "starting", Reason: fmt.Sprintf("attempt 0 starts on %d nodes", len(first))},
			{At: at(0.5), Attempt: 0, To: "training", Reason: fmt.Sprintf("%d ranks run", ranks)},
			{At: at(8), Attempt: 0, To: "stopping", Cause: "gpu-lost", Node: c.node(0), Reason: "rank 3 on " + c.node(0) + " (gpu 3) exited with code 1: the GPU is lost (Xid 79)"},
			{At: at(8.2), Attempt: 0, To: "backoff", Cause: "gpu-lost", Node: c.node(0), Reason: "attempt 1 follows after a backoff of 1s"},
			{At: at(8.3), Attempt: 1, To: "starting", Reason: "attempt 1 starts"},
			{At: at(8.8), Attempt: 1, To: "training", Reason: fmt.Sprintf("%d ranks run", ranks)},
		},
	}}
	if len(last) > 0 {
		jobs = append(jobs, report.JobStatus{
			ID: "moe-ablation-3", Title: "python -m moe.train --experts 64", Phase: "backoff", Waits: "attempt 3 follows after a backoff",
			Submitted: at(3), Attempt: 2, Restarts: 2, MaxRestarts: 3, Nodes: last, Ranks: len(last) * gpusPerNode, GPUs: len(last) * gpusPerNode,
			History: []report.Moment{
				{At: at(3), Attempt: 0, To: "starting", Reason: "attempt 0 starts"},
				{At: at(9), Attempt: 2, To: "backoff", Cause: "oom", Node: last[0], Reason: "rank 0 on " + last[0] + " died of SIGKILL (out of memory)"},
			},
		})
	}
	return append(jobs, report.JobStatus{
		ID: "eval-nightly", Title: "python eval.py", Phase: "gathering", Waits: fmt.Sprintf("%d of %d nodes are free; 16 GPUs are wanted", 0, c.Nodes),
		Submitted: at(5), Detached: true, MaxRestarts: 3,
	}, report.JobStatus{
		ID: "tokenize", Title: "python tokenize.py <script>alert(1)</script> \x1b[31mred", Phase: "finished", Waits: "all ranks exited with code 0", Submitted: at(1), Finished: at(4),
		Nodes: first[:1], Result: &report.Result{Ending: report.EndSuccess, Reason: "all ranks exited with code 0", Attempts: 1},
	})
}

// Samples returns the samples of ten minutes of every rank and node, and then further samples.
func (c *Cluster) Samples(ctx context.Context, q launcher.SampleQuery) iter.Seq2[launcher.NodeSamples, error] {
	return func(yield func(launcher.NodeSamples, error) bool) {
		if err := c.fails(); err != nil {
			yield(launcher.NodeSamples{}, err)
			return
		}
		since := min(q.Since, 10*time.Minute)
		for {
			now := c.now()
			for i := range c.Nodes {
				if i == c.Nodes-1 && i > 0 {
					continue // the node is silent
				}
				if !yield(c.samples(i, now, since, q.Job), nil) {
					return
				}
			}
			if c.Every == 0 || q.Every == 0 {
				if q.Every > 0 {
					<-ctx.Done()
				}
				return
			}
			select {
			case <-time.After(c.Every):
			case <-ctx.Done():
				return
			}
			since = 0
		}
	}
}

func (c *Cluster) samples(i int, now time.Time, since time.Duration, job string) launcher.NodeSamples {
	n := launcher.NodeSamples{Node: c.node(i), Now: now}
	node := report.Series{Rank: -1}
	for _, at := range times(now, since) {
		u := none()
		u.CPUs, u.Memory, u.MemoryTotal, u.Ranks = 38+wave(at, i, 0)*4, 7e11+wave(at, i, 1)*1e10, 2<<40, gpusPerNode
		u.Received, u.Sent = 2.1e10+wave(at, i, 2)*1e9, 2.0e10+wave(at, i, 3)*1e9
		node.Samples = append(node.Samples, report.Sample{At: at, Usage: u})
	}
	n.Series = append(n.Series, node)
	if i >= c.training() || job != "" && job != "llama-70b" {
		return n
	}
	for g := range gpusPerNode {
		n.Series = append(n.Series, c.rank(i, g, now, since))
	}
	return n
}

func (c *Cluster) rank(i, g int, now time.Time, since time.Duration) report.Series {
	rank := i*gpusPerNode + g
	s := report.Series{
		Job: "llama-70b", Rank: rank, LocalRank: g, PID: 4000 + 10*g, GPU: fmt.Sprintf("GPU-%04d-%d", i, g), Does: "running",
	}
	for _, at := range times(now, since) {
		s.Samples = append(s.Samples, report.Sample{At: at, Attempt: 1, Usage: c.usage(rank, at)})
	}
	return s
}

// stepTime is the time of a step of the simulated job, in seconds.
const stepTime = 0.43

// slower is the factor by which the slow rank is slower.
const slower = 1.2

func (c *Cluster) usage(rank int, at time.Time) report.Usage {
	u := none()
	still := 0.0
	if c.Still != nil && !c.Still(rank).IsZero() {
		still = max(0, at.Sub(c.Still(rank)).Seconds())
	}
	seconds := at.Sub(c.Began).Seconds() - still
	u.CPUs, u.Memory, u.IO, u.Faults, u.Processes = 1.4+wave(at, rank, 0)*0.3, 9e9, 3e6, 400, 9
	step := stepTime
	if slow := c.Slow >= 0 && !at.Before(c.SlowFrom); slow { // all ranks wait for the slow rank
		step *= slower
		before := max(0, c.SlowFrom.Sub(c.Began).Seconds())
		u.Step = math.Floor(before/stepTime + (seconds-before)/step)
	} else {
		u.Step = math.Floor(seconds / stepTime)
	}
	u.Total, u.StepTime = 50_000, step*(1+0.01*wave(at, rank, 1))
	u.BeatAge, u.SilenceAge, u.Lines, u.LogBytes = math.Mod(seconds, step)+still, math.Mod(seconds, 5)+still, seconds/5, seconds*20
	u.GPUUse, u.GPUMemory, u.GPUMemoryTotal = 0.97+0.02*wave(at, rank, 2), 71e9, 85e9
	u.GPUPower, u.GPUPowerLimit, u.GPUTemperature, u.Xids = 610+8*noise(at, rank), 700, 61+3*wave(at, rank, 4), 0
	if c.Slow >= 0 && rank != c.Slow && !at.Before(c.SlowFrom) {
		u.GPUPower -= (u.GPUPower - 200) * (slower - 1) / slower // the rank waits for a part of each step
	}
	return u
}

func times(now time.Time, since time.Duration) (all []time.Time) {
	for at := now.Add(-since).Truncate(5 * time.Second); at.Before(now.Add(-5 * time.Second)); at = at.Add(5 * time.Second) {
		all = append(all, at)
	}
	return append(all, now)
}

// wave is between -1 and 1, and depends on nothing but its arguments.
func wave(at time.Time, i, j int) float64 {
	return math.Sin(float64(at.Unix()%3600)/(17+float64(j)*5) + float64(i*7+j*3))
}

// noise is like wave, but changes completely within a second.
func noise(at time.Time, i int) float64 {
	h := uint64(at.Unix())*0x9e3779b97f4a7c15 ^ uint64(i+1)*0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	return float64(h>>40)/(1<<23) - 1
}

func none() report.Usage {
	nan := math.NaN()
	return report.Usage{
		CPUs: nan, Memory: nan, MemoryTotal: nan, IO: nan, Faults: nan, Processes: nan, Step: nan, Total: nan, StepTime: nan, BeatAge: nan,
		SilenceAge: nan, Lines: nan, LogBytes: nan, GPUUse: nan, GPUMemory: nan, GPUMemoryTotal: nan, GPUPower: nan, GPUPowerLimit: nan,
		GPUTemperature: nan, Xids: nan, Received: nan, Sent: nan, Ranks: nan,
	}
}

// Ping returns an answer of every node except the last.
func (c *Cluster) Ping(context.Context, string, time.Duration) iter.Seq2[launcher.Pong, error] {
	return func(yield func(launcher.Pong, error) bool) {
		for i := range c.Nodes {
			p := launcher.Pong{Node: c.node(i), After: time.Duration(300+i%700) * time.Microsecond}
			if i == c.Nodes-1 && i > 0 {
				p = launcher.Pong{Node: p.Node, Missing: "node " + p.Node + " did not answer within 2s"}
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

// Logs returns a few lines of every rank of the first job. Rank 7's last loss is nan. With Follow,
// Logs then waits for ctx.
func (c *Cluster) Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error] {
	return func(yield func(report.LogChunk, error) bool) {
		if id != "llama-70b" {
			return
		}
		world := c.training() * gpusPerNode
		offset := make([]int64, world)
		for step := range 6 {
			for rank := range world {
				loss := fmt.Sprintf("%.4f", 0.42+0.01*math.Sin(float64(rank+step)))
				if rank == 7 && step == 5 {
					loss = "nan"
				}
				text := fmt.Sprintf("step %d loss=%s lr=3.0e-04\n", 100+step, loss)
				chunk := report.LogChunk{
					LogPosition: report.LogPosition{Rank: rank, Attempt: 1, Stream: 1, Offset: offset[rank]},
					Node:        c.node(rank / gpusPerNode), WorldSize: world, Data: []byte(text),
				}
				offset[rank] += int64(len(text))
				if !yield(chunk, nil) {
					return
				}
			}
		}
		if f.Follow {
			<-ctx.Done()
		}
	}
}

// Stop notes that a job was asked to stop.
func (c *Cluster) Stop(_ context.Context, id string, _ int, _ string) ([]string, error) {
	if err := c.fails(); err != nil {
		return nil, err
	}
	c.Stopped = append(c.Stopped, id)
	return []string{id}, nil
}

// Close does nothing.
func (c *Cluster) Close() error { return nil }
