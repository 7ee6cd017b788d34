package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/launcher"
)

type logsOptions struct {
	clusterFlags
	follow  bool
	ranks   string
	attempt int
	prefix  bool
	fold    string
}

func newLogs(s *streams) *cobra.Command {
	var o logsOptions
	c := newVerb("logs JOB [-f] [--ranks R] [--attempt K]", "print what the ranks of a job wrote", takes(1, 1))
	f := c.Flags()
	o.declare(f)
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the job is over")
	f.StringVar(&o.ranks, "ranks", "", "only these ranks: `0,8-15`")
	f.IntVar(&o.attempt, "attempt", -1, "only this attempt; -1 is all")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank")
	f.StringVar(&o.fold, "fold", "auto", foldUsage)
	c.ValidArgsFunction = o.completeJobs(true)
	c.RunE = s.does(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, args[0]) })
	return c
}

const foldUsage = "show lines that ranks have in common once, with those ranks, `when`: on, off, or auto on a terminal with more than eight"

// run prints what the ranks of a job wrote, wherever they ran.
func (o *logsOptions) run(io *streams, id string) (int, error) {
	ranks, err := parseSpans(o.ranks)
	if err != nil {
		return 0, bad("ranks", err)
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.coordinator, o.tokenFile, id)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filter := launcher.LogFilter{Ranks: ranks, Attempt: max(-1, o.attempt), Follow: o.follow}
	missing, err := o.print(ctx, io, c, id, filter)
	if err == nil && missing {
		return exitFailure, nil
	}
	return 0, err
}

// print prints lines for people, or as JSON.
func (o *logsOptions) print(ctx context.Context, io *streams, c *launcher.Client, id string, f launcher.LogFilter) (missing bool, err error) {
	if !o.json {
		return c.Print(ctx, id, f, launcher.Output{Stdout: io.stdout, Stderr: io.stderr, Prefix: &o.prefix, Fold: o.fold})
	}
	return printLines(c.Logs(ctx, id, f), io.stdout)
}
