// Package group calls the ranks of a job: a [Group] is a job on a reservation whose ranks answer
// calls, and groups with the same GPUs take turns on them.
//
//	held, err := group.Reserve(ctx, client, launcher.Job{Resources: where}, 1)
//	g, err := held.Group(ctx, launcher.Job{Command: []string{self}, Resources: where})
//	out, err := g.CallAll(ctx, "step", in)
//
// A rank becomes a worker by rankenv.Info.Serve.
package group

import (
	"context"

	"github.com/golaunch/golaunch/launcher"
)

// Reservation is a [launcher.Reservation] on which groups run.
type Reservation struct {
	*launcher.Reservation

	client *launcher.Client
	turns  *turns
}

// Reserve reserves GPUs for groups, as [launcher.Client.Reserve] does.
func Reserve(ctx context.Context, client *launcher.Client, j launcher.Job, colocated int) (*Reservation, error) {
	r, err := client.Reserve(ctx, j, colocated)
	if err != nil {
		return nil, err
	}
	return &Reservation{r, client, newTurns()}, nil
}
