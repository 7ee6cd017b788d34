package watch

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// NewCost returns the verb that prints the use of nodes and its cost.
func NewCost(s *cli.Console) *cobra.Command {
	var o statusOptions
	c := cli.NewVerb("cost", "print the node-hours of a cluster's users and jobs, and what they cost", cli.Args(0, 0))
	o.declare(c.Flags())
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) { return 0, o.printCosts(s) })
	return c
}

func (o *statusOptions) printCosts(io *cli.Console) error {
	ctx := context.Background()
	cluster, err := launcher.Connect(ctx, o.Coordinator, o.TokenFile) // jobs without a cluster have no cost
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }() // the coordinator has answered
	s, err := cluster.Query(ctx, report.Query{Jobs: true, Open: !o.all, Brief: true})
	if err != nil {
		return err
	}
	costs := listing.NewCosts(s)
	if o.JSON {
		return jsonout.Print(io.Stdout, costs)
	}
	return costs.Write(io.Stdout)
}
