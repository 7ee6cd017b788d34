package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/golaunch/golaunch/internal/announce"
	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// These are the words of a cluster that other packages define.
type (
	// Status is a cluster as it stands.
	Status = rendezvous.Status
	// NodeStatus is one node of it, JobStatus one job.
	NodeStatus = rendezvous.NodeStatus
	JobStatus  = rendezvous.JobStatus
	// Watch follows a job; LogReader reads its output, which LogFilter chooses.
	Watch     = rendezvous.Watch
	LogReader = rendezvous.LogReader
	LogFilter = rendezvous.LogFilter
	// RAS is what the NCCL of a job says.
	RAS = rendezvous.RAS
)

// Client asks the coordinator of a cluster. Beside Submit, Run and Reserve it has the methods of [rendezvous.Client]: Watch, Logs,
// RAS, Stop, Signal, Drain, Status, Job and Close. It may be used by several goroutines.
type Client struct {
	*rendezvous.Client
}

// ErrNoCoordinator says that no coordinator was named, and none runs on this machine.
var ErrNoCoordinator = errors.New("no coordinator runs on this machine; start one (golaunch coordinator), or name one (--coordinator HOST:PORT)")

// Connect reaches the coordinator at HOST:PORT, or when that is empty, the one that this user runs on this machine. TokenFile is as
// in a Job.
func Connect(ctx context.Context, coordinator, tokenFile string) (*Client, error) {
	if coordinator == "" {
		var err error
		if coordinator, err = announce.Find(ctx); err != nil {
			return nil, err
		}
		if coordinator == "" {
			return nil, ErrNoCoordinator
		}
	}
	at, err := resolve(ctx, coordinator)
	if err != nil {
		return nil, err
	}
	token, err := mtls.LoadToken(tokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return nil, err
	}
	c, err := rendezvous.Connect(ctx, rendezvous.ClientOptions{
		Target: coordinator, Dial: dialTCP(at.host, at.port), TLS: mtls.Client(token, mtls.Identity{}),
	})
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Submit brings a job to the cluster. The watch tells how it goes on; when that is closed before the job's end, or ctx ends, the job
// is stopped, unless it is Detached. Stdin, Stdout and Stderr do not matter: Logs has the output.
func (c *Client) Submit(ctx context.Context, j Job) (*Watch, error) {
	j.Cluster.Coordinator = c.Target
	j, err := j.complete()
	if err != nil {
		return nil, err
	}
	s, err := j.remote()
	if err != nil {
		return nil, err
	}
	return c.Client.Submit(ctx, s)
}

// ErrNotThere marks errors about a job or node that the cluster does not have.
var ErrNotThere = rendezvous.ErrNotThere

// IsUsage says that an error is the caller's to mend: an ErrUsage, or a request that a coordinator will never grant.
func IsUsage(err error) bool {
	r, ok := errors.AsType[*rendezvous.RequestError](err)
	return errors.Is(err, ErrUsage) || ok && r.Bad
}

// remote is the job as it is submitted: what depends on the caller's process is settled.
func (j Job) remote() (rendezvous.Submission, error) {
	s := j.submission()
	s.Job.FixedPool = false
	s.Detached, s.Within, s.Backfill, s.GPUs = j.Cluster.Detached, j.Cluster.Within, j.Cluster.Backfill, j.Cluster.GPUs
	user, err := j.user()
	if err != nil {
		return s, err
	}
	j.Env = nil
	for _, v := range user {
		j.Env = append(j.Env, v.Name+"="+v.Value)
	}
	if j.Dir == "" {
		if j.Dir, err = os.Getwd(); err != nil {
			return s, fmt.Errorf("cannot tell the working directory: %w; give one with --dir", err)
		}
	}
	j.Ranks.Stdin, j.Network.TokenFile = false, ""
	s.Task, err = json.Marshal(j)
	if len(s.Task) > maxTask {
		return s, usage("the command and its --env have %d bytes, more than %d", len(s.Task), maxTask)
	}
	return s, err
}

// maxTask bounds a submitted job, in bytes.
const maxTask = 512 << 10

// Reserve waits until the cluster has placement groups for the request, and holds them until Release, or until ctx ends. Jobs run on
// them, one after another or side by side, without waiting for others: Within names the reservation. Colocated is how many of those
// may share a GPU, as groups of ranks that take turns do; 0 is 1. Request.PerNode such as [4, 8, 2] makes groups of different sizes.
func (c *Client) Reserve(ctx context.Context, j Job, colocated int) (*Reservation, error) {
	if len(j.Command) == 0 {
		j.Command = []string{"(reservation)"}
	}
	j.Cluster.Coordinator = c.Target
	j, err := j.complete()
	if err != nil {
		return nil, err
	}
	s, err := j.remote()
	if err != nil {
		return nil, err
	}
	s.Reserve, s.Colocated, s.Task = true, colocated, nil
	w, err := c.Client.Submit(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &Reservation{ID: j.ID, client: c, watch: w, over: make(chan struct{})}
	for r.Plan.Groups == nil {
		u, err := w.Next(ctx)
		switch {
		case err != nil:
			w.Close()
			return nil, err
		case u.Result != nil:
			w.Close()
			return nil, fmt.Errorf("no reservation: %s", u.Result.Reason)
		case u.Granted != nil:
			r.Plan = *u.Granted
		case u.Decision != nil && j.Output.Observe != nil:
			j.Output.Observe(*u.Decision)
		}
	}
	go r.hold(ctx)
	return r, nil
}

// Reservation holds GPUs of a cluster for jobs.
type Reservation struct {
	ID string
	// Plan has the placement groups that were granted. A node that is lost is replaced, which Plan does not show.
	Plan placement.Plan

	client *Client
	watch  *Watch
	over   chan struct{}
	err    error
}

// hold keeps the watch going, which holds the reservation.
func (r *Reservation) hold(ctx context.Context) {
	defer close(r.over)
	for {
		if _, err := r.watch.Next(ctx); err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			return
		}
	}
}

// Submit brings a job that runs on the reservation.
func (r *Reservation) Submit(ctx context.Context, j Job) (*Watch, error) {
	j.Cluster.Within = r.ID
	return r.client.Submit(ctx, j)
}

// Run runs a job on the reservation, as [Client.Run] does.
func (r *Reservation) Run(ctx context.Context, j Job) (Result, error) {
	j.Cluster.Within = r.ID
	return r.client.Run(ctx, j)
}

// Done is closed when the reservation is over: released, or lost with the coordinator, as Err then says.
func (r *Reservation) Done() <-chan struct{} { return r.over }

// Err is why the reservation was lost; nil before, and when it was released.
func (r *Reservation) Err() error {
	select {
	case <-r.over:
		return r.err
	default:
		return nil
	}
}

// Release stops the jobs that run on the reservation and gives its GPUs back. It returns when that is done.
func (r *Reservation) Release(ctx context.Context) error {
	_, err := r.client.Stop(ctx, r.ID, CodeStopped, "its reservation was released")
	if err != nil && !errors.Is(err, ErrNotThere) {
		return err
	}
	select {
	case <-r.over:
		r.watch.Close()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
