package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/launcher"
)

type logsOptions struct {
	cli.ClusterFlags
	follow  bool
	ranks   string
	attempt int
	prefix  bool
	fold    string
}

func newLogs(s *cli.Console) *cobra.Command {
	var o logsOptions
	c := cli.NewVerb("logs JOB [-f] [--ranks R] [--attempt K]", "print what the ranks of a job wrote", cli.Args(1, 1))
	f := c.Flags()
	o.Declare(f)
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the job is over")
	f.StringVar(&o.ranks, "ranks", "", "only these ranks: `0,8-15`")
	f.IntVar(&o.attempt, "attempt", -1, "only this attempt; -1 is all")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank")
	f.StringVar(&o.fold, "fold", "auto", jobflags.FoldUsage)
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, args[0]) })
	return c
}

// run prints what the ranks of a job wrote, wherever they ran.
func (o *logsOptions) run(io *cli.Console, id string) (int, error) {
	ranks, err := jobflags.ParseRanks(o.ranks)
	if err != nil {
		return 0, cli.BadFlag("ranks", err)
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, id)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filter := launcher.LogFilter{Ranks: ranks, Attempt: max(-1, o.attempt), Follow: o.follow}
	missing, err := o.print(ctx, io, c, id, filter)
	if err == nil && missing {
		return cli.ExitFailure, nil
	}
	return 0, err
}

// print prints lines for people, or as JSON.
func (o *logsOptions) print(ctx context.Context, io *cli.Console, c *launcher.Client, id string, f launcher.LogFilter) (missing bool, err error) {
	if !o.JSON {
		return c.Print(ctx, id, f, launcher.Output{Stdout: io.Stdout, Stderr: io.Stderr, Prefix: &o.prefix, Fold: o.fold})
	}
	return printLines(c.Logs(ctx, id, f), io.Stdout)
}
