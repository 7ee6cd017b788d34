package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type swapOptions struct {
	clusterFlags
	within time.Duration
}

func newSwap(s *streams) *cobra.Command {
	var o swapOptions
	c := newVerb("swap NODE [--within TIME]", "have the jobs on a node go on elsewhere, and the node leave", takes(1, 1))
	o.declare(c.Flags())
	c.Flags().DurationVar(&o.within, "within", 2*time.Minute, "how long the ranks of its jobs have to get ready, see GOLAUNCH_NOTICE_FILE")
	c.ValidArgsFunction = o.completeNodes()
	c.RunE = s.does(func(_ *cobra.Command, args []string) (int, error) { return 0, o.run(s, args[0]) })
	return c
}

// run takes a node out of its jobs, which go on elsewhere at no cost, and returns when its agent has left.
func (o *swapOptions) run(io *streams, node string) error {
	if o.within < 0 {
		return fmt.Errorf("%w: --within %s: at least 0s", launcher.ErrUsage, o.within)
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.coordinator, o.tokenFile)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Swap(ctx, node, o.within); err != nil {
		return err
	}
	if o.json {
		return jsonout.Print(io.stdout, &swappedShown{Node: node})
	}
	io.say(node + " has left")
	return nil
}

// swappedShown is what swap prints as JSON; docs/json.md is its contract.
type swappedShown struct {
	jsonout.Header
	Node string `json:"node"`
}
