package controller

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// place says where a reservation or a group shall run.
type place struct {
	// PerNode has, for each node, the number of ranks or of bundles.
	PerNode  []int   `json:"per_node"`
	GPU      bool    `json:"gpu"`
	PerGPU   int     `json:"per_gpu"`
	GPUIDs   []int   `json:"gpu_ids"`
	CPUs     int     `json:"cpus"`
	Strategy string  `json:"strategy"`
	Timeout  float64 `json:"timeout"`
	Backfill bool    `json:"backfill"`
}

func (p place) resources() launcher.Resources {
	return launcher.Resources{
		MinNodes: len(p.PerNode), MaxNodes: len(p.PerNode), PerNode: p.PerNode, GPU: p.GPU, PerGPU: p.PerGPU, CPUs: p.CPUs, Strategy: placement.Strategy(p.Strategy),
		PlacementTimeout: time.Duration(p.Timeout * float64(time.Second)),
	}
}

type reserveRequest struct {
	place
	ID       string `json:"id"`
	Colocate int    `json:"colocate"`
	Priority string `json:"priority"`
}

// reservedNode is a node of a reservation, with the resources reserved there.
type reservedNode struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Bundles int    `json:"bundles"`
	GPUs    []int  `json:"gpus"`
}

// cluster returns the cluster that the program opened.
func (c *controller) cluster() (*launcher.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil, errors.New("this program has no cluster")
	}
	return c.client, nil
}

func (c *controller) reserve(ctx context.Context, r reserveRequest) ([]reservedNode, error) {
	client, err := c.cluster()
	if err != nil {
		return nil, err
	}
	j := launcher.Job{ID: r.ID, Resources: r.resources()}
	j.Cluster.GPUs, j.Cluster.Backfill, j.Cluster.Priority = r.GPUIDs, r.Backfill, r.Priority
	j.Output.Observe = func(d report.Decision) {
		c.tell(groupEvent{Event: "decision", Job: r.ID, Reason: d.Reason, News: d.News})
	}
	lasting, made := outliving(ctx)
	held, err := client.Reserve(lasting, j, r.Colocate)
	made()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.held[r.ID] = held
	c.mu.Unlock()
	go func() {
		<-held.Done()
		if err := held.Err(); err != nil {
			c.tell(groupEvent{Event: "lost", Job: r.ID, Reason: err.Error()})
		}
	}()
	nodes := make([]reservedNode, len(held.Plan.Groups))
	for i, g := range held.Plan.Groups {
		nodes[i] = reservedNode{Name: g.Node.Name, Address: g.Node.Addr.String(), Bundles: len(g.Bundles), GPUs: []int{}}
		for _, b := range g.Bundles {
			if b.GPU != nil && !slices.Contains(nodes[i].GPUs, b.GPU.Index) {
				nodes[i].GPUs = append(nodes[i].GPUs, b.GPU.Index)
			}
		}
	}
	return nodes, nil
}

// outliving returns a context for a reservation or a group that a question makes. Until made is
// called, it ends with ctx. After that it outlives the question and the program, so that close can
// end all groups in order.
func outliving(ctx context.Context) (lasting context.Context, made func()) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return lasting, func() { stop() }
}

func (c *controller) release(ctx context.Context, r reserveRequest) (struct{}, error) {
	c.mu.Lock()
	held := c.held[r.ID]
	delete(c.held, r.ID)
	c.mu.Unlock()
	if held == nil {
		return struct{}{}, nil
	}
	return struct{}{}, held.Release(ctx)
}

// startRequest describes a group as a job.
type startRequest struct {
	place
	ID      string   `json:"id"`
	Within  string   `json:"within"`
	Command []string `json:"command"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	LogDir  string   `json:"log_dir"`
	// Restart is a policy of launcher.Restarts, and Backoff is in seconds.
	Restart       string  `json:"restart"`
	MaxRestarts   int     `json:"max_restarts"`
	Backoff       float64 `json:"backoff"`
	Grace         float64 `json:"grace"`
	HangTimeout   float64 `json:"hang_timeout"`
	Preload       string  `json:"preload"`
	PreloadStrict bool    `json:"preload_strict"`
	// Socket is the program's socket. Workers on other machines are connected to it, and prove with
	// Key that they belong to the group. If Socket is empty, they cannot connect.
	Socket string `json:"socket"`
	Key    string `json:"key"`
	// Shown prints the output of the workers.
	Shown bool `json:"shown"`
}

func (s startRequest) job() launcher.Job {
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	return launcher.Job{
		ID: s.ID, Command: s.Command, Env: s.Env, Dir: s.Dir, Resources: s.resources(),
		Ranks:    launcher.Ranks{Preload: s.Preload, PreloadStrict: s.PreloadStrict, Endpoint: s.Socket != ""},
		Restarts: launcher.Restarts{Policy: s.Restart, Max: s.MaxRestarts, BackoffMin: seconds(s.Backoff), BackoffMax: seconds(s.Backoff)},
		Stopping: launcher.Stopping{Grace: seconds(s.Grace)}, Health: launcher.Health{HangTimeout: seconds(s.HangTimeout)},
		Output: launcher.Output{LogDir: s.LogDir}, Cluster: launcher.Cluster{GPUs: s.GPUIDs},
	}
}

// groupEvent is an event of a group or of a reservation.
type groupEvent struct {
	Event  string `json:"event"`
	Job    string `json:"job"`
	Reason string `json:"reason"`
	News   bool   `json:"news,omitempty"`
	// Cause and Verdict are the coordinator's verdict on the Failure, in a line; empty without a
	// verdict.
	Cause   string          `json:"cause,omitempty"`
	Verdict string          `json:"verdict,omitempty"`
	Failure *report.Failure `json:"failure,omitempty"`
	Result  *report.Result  `json:"result,omitempty"`
}

func (c *controller) start(ctx context.Context, s startRequest) (struct{}, error) {
	c.mu.Lock()
	held := c.held[s.Within]
	c.mu.Unlock()
	if held == nil {
		return struct{}{}, errors.New("the reservation of this group has ended")
	}
	ctx, made := outliving(ctx) // the group ends with its reservation
	w, err := held.Submit(ctx, s.job())
	made()
	if err != nil {
		return struct{}{}, err
	}
	var far *endpoint.Reach
	if s.Socket != "" {
		far = c.reach(s)
	}
	c.running.Go(func() { c.watch(ctx, w, far) })
	if s.Shown {
		c.running.Go(func() { c.show(ctx, s.ID) })
	}
	return struct{}{}, nil
}

// watch reports all events of a group. Any event may change the group's nodes.
func (c *controller) watch(ctx context.Context, w *launcher.Watch, far *endpoint.Reach) {
	defer w.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if far != nil {
		c.running.Go(func() { far.Run(ctx) })
	}
	for {
		d, err := w.Next(ctx)
		if far != nil {
			far.Ask()
		}
		t := groupEvent{Event: "decision", Job: w.Job, Reason: d.Reason, News: d.News, Failure: d.Failure, Result: d.Result}
		switch {
		case err != nil:
			t.Event = "over"
			if !errors.Is(err, io.EOF) {
				t.Reason = err.Error()
			}
		case d.Result != nil:
			t.Event, t.Failure = "over", d.Result.Cause
		}
		if f := t.Failure; f != nil {
			t.Cause, t.Verdict = f.Verdict.Cause, f.Verdict.String()
		}
		c.tell(t)
		if t.Event == "over" {
			return
		}
	}
}

// show prints the output of the workers.
func (c *controller) show(ctx context.Context, job string) {
	prefixed := true
	_, err := c.client.Print(ctx, job, report.LogFilter{Attempt: -1, Follow: true}, launcher.Output{Stdout: c.stdout, Stderr: c.stderr, Prefix: &prefixed})
	if err != nil && !errors.Is(err, launcher.ErrNotThere) {
		c.tell(warning{"warning", "the output of " + job + " is not shown any more: " + err.Error()})
	}
}

// stopRequest names the group to stop, and why.
type stopRequest struct {
	Job string `json:"job"`
	Why string `json:"why"`
}

// stop asks a group to end; a second call kills the group.
func (c *controller) stop(ctx context.Context, s stopRequest) (struct{}, error) {
	client, err := c.cluster()
	if err != nil {
		return struct{}{}, err
	}
	_, err = client.Stop(ctx, s.Job, launcher.CodeStopped, s.Why)
	if errors.Is(err, launcher.ErrNotThere) {
		err = nil
	}
	return struct{}{}, err
}
