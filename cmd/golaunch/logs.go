package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

type logsOptions struct {
	clusterFlags
	follow  bool
	ranks   string
	attempt int
	prefix  bool
}

func newLogsFlags(o *logsOptions) *pflag.FlagSet {
	f := newVerbFlags("logs")
	o.declare(f)
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the job is over")
	f.StringVar(&o.ranks, "rank", "", "only these ranks: `0,8-15`")
	f.IntVar(&o.attempt, "attempt", -1, "only this attempt; -1 is all")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank")
	return f
}

// logs prints what the ranks of a job wrote, wherever they ran.
func logs(io *streams, args []string) (int, error) {
	var o logsOptions
	f := newLogsFlags(&o)
	if err := parseVerb(f, args, 1, 1); err != nil {
		return helpOr(io, f, err)
	}
	ranks, err := parseSpans(o.ranks)
	if err != nil {
		return 0, bad("rank", err)
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.coordinator, o.tokenFile)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filter := launcher.LogFilter{Ranks: ranks, Attempt: max(-1, o.attempt), Follow: o.follow}
	missing, err := o.print(ctx, io, c, f.Arg(0), filter)
	if err == nil && missing {
		return exitFailure, nil
	}
	return 0, err
}

// print prints lines for people, or as JSON.
func (o *logsOptions) print(ctx context.Context, io *streams, c *launcher.Client, id string, f launcher.LogFilter) (missing bool, err error) {
	if !o.json {
		return c.Print(ctx, id, f, launcher.Output{Stdout: io.stdout, Stderr: io.stderr, Prefix: &o.prefix})
	}
	return printLines(c.Logs(ctx, id, f), io.stdout)
}
