package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type swapOptions struct {
	cli.ClusterFlags
	within time.Duration
}

func newSwap(s *cli.Console) *cobra.Command {
	var o swapOptions
	c := cli.NewVerb("swap NODE [--within TIME]", "move a node's jobs to other nodes, and let the node leave", cli.Args(1, 1))
	o.Declare(c.Flags())
	c.Flags().DurationVar(&o.within, "within", 2*time.Minute, "how long the ranks of its jobs may prepare, see GOLAUNCH_NOTICE_FILE")
	c.ValidArgsFunction = o.CompleteNodes()
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.run(s, args[0]) })
	return c
}

// run takes a node out of its jobs, which go on elsewhere, and returns when the node's agent has
// left.
func (o *swapOptions) run(io *cli.Console, node string) error {
	if o.within < 0 {
		return fmt.Errorf("%w: --within %s: at least 0s", launcher.ErrUsage, o.within)
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.Coordinator, o.TokenFile)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Swap(ctx, node, o.within); err != nil {
		return err
	}
	if o.JSON {
		return jsonout.Print(io.Stdout, &swappedShown{Node: node})
	}
	io.Say(node + " has left")
	return nil
}

// swap --json prints this; docs/json.md is its contract.
type swappedShown struct {
	jsonout.Header
	Node string `json:"node"`
}
