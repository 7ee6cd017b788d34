package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

type stopOptions struct {
	clusterFlags
	all, kill, noWait bool
}

func newStopFlags(o *stopOptions) *pflag.FlagSet {
	f := newVerbFlags("stop")
	o.declare(f)
	f.BoolVar(&o.all, "all", false, "stop all jobs")
	f.BoolVar(&o.kill, "kill", false, "kill the ranks at once")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until nothing of it lives")
	return f
}

// stop ends jobs, and returns when no process of them lives on any node.
func stop(io *streams, args []string) (int, error) {
	var o stopOptions
	f := newStopFlags(&o)
	if err := parseVerb(f, args, 0, 1); err != nil {
		return helpOr(io, f, err)
	}
	if o.all == (f.NArg() == 1) {
		return 0, fmt.Errorf("%w: stop which job? give its id, or --all", launcher.ErrUsage)
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.coordinator, o.tokenFile)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stopped, err := o.ask(ctx, c, f.Arg(0))
	if err != nil {
		return 0, err
	}
	for _, id := range stopped {
		if o.noWait {
			break
		}
		if _, err := c.Wait(ctx, id); err != nil {
			return 0, err
		}
	}
	if o.json {
		return 0, writeJSON(io.stdout, struct {
			Stopped []string `json:"stopped"`
		}{append([]string{}, stopped...)})
	}
	if len(stopped) == 0 {
		io.say("nothing to stop")
	}
	return 0, nil
}

// ask stops, and with --kill asks again, which kills.
func (o *stopOptions) ask(ctx context.Context, c *launcher.Client, id string) ([]string, error) {
	stopped, err := c.Stop(ctx, id, launcher.CodeStopped, "somebody stopped it")
	if err != nil || !o.kill {
		return stopped, err
	}
	_, err = c.Stop(ctx, id, launcher.CodeStopped, "somebody stopped it")
	return stopped, err
}
