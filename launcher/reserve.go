package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Reserve waits until the cluster has placement groups for the request. It holds them until Release
// is called or ctx ends. Jobs whose Cluster.Within names the reservation run on these groups, one
// after another or side by side. They do not wait for jobs outside of the reservation. Colocated is
// how many jobs may share a GPU, as groups that take turns do; 0 means 1. PerNode such as [4, 8, 2]
// makes groups of different sizes.
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
	w, err := c.head.Submit(ctx, s)
	if err != nil {
		return nil, refusalOf(err)
	}
	r := &Reservation{ID: j.ID, client: c, watch: w, over: make(chan struct{})}
	for r.Plan.Groups == nil {
		u, err := w.Next(ctx)
		switch {
		case err != nil:
			w.Close()
			return nil, refusalOf(err)
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
	// Plan has the granted placement groups. If a lost node is replaced later, Plan still has the
	// lost node.
	Plan placement.Plan

	client *Client
	watch  *session.Watch
	over   chan struct{}
	err    error
}

// hold reads the watch until the reservation ends, because the reservation lives only as long as
// its watch.
func (r *Reservation) hold(ctx context.Context) {
	defer close(r.over)
	for {
		if _, err := r.watch.Next(ctx); err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = refusalOf(err)
			}
			return
		}
	}
}

// Submit gives the cluster a job that runs on the reservation.
func (r *Reservation) Submit(ctx context.Context, j Job) (*Watch, error) {
	j.Cluster.Within = r.ID
	return r.client.Submit(ctx, j)
}

// Run runs a job on the reservation, as [Client.Run] does.
func (r *Reservation) Run(ctx context.Context, j Job) (report.Result, error) {
	j.Cluster.Within = r.ID
	return r.client.Run(ctx, j)
}

// Done returns a channel that is closed when the reservation was released, or was lost with the
// coordinator.
func (r *Reservation) Done() <-chan struct{} { return r.over }

// Err says why the reservation was lost; nil if it still exists or was released.
func (r *Reservation) Err() error {
	select {
	case <-r.over:
		return r.err
	default:
		return nil
	}
}

// Release stops the jobs on the reservation, gives its GPUs back, and then returns.
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
