package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type stopOptions struct {
	cli.ClusterFlags
	all, kill, noWait bool
}

func newStop(s *cli.Console) *cobra.Command {
	var o stopOptions
	c := cli.NewVerb("stop JOB | --all", "stop jobs, and wait until their processes are gone", cli.Args(0, 1))
	f := c.Flags()
	o.Declare(f)
	f.BoolVar(&o.all, "all", false, "stop all jobs")
	f.BoolVar(&o.kill, "kill", false, "kill the ranks at once")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until its processes are gone")
	c.ValidArgsFunction = o.CompleteJobs(false)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.run(s, args) })
	return c
}

// run stops jobs and returns when no process of them is left on any node.
func (o *stopOptions) run(io *cli.Console, args []string) error {
	if o.all == (len(args) == 1) {
		return fmt.Errorf("%w: stop which job? give its id, or --all", launcher.ErrUsage)
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, strings.Join(args, ""))
	if err != nil {
		return err
	}
	defer c.Close()
	stopped, err := o.ask(ctx, c, strings.Join(args, ""))
	if err != nil {
		return err
	}
	for _, id := range stopped {
		if o.noWait {
			break
		}
		if _, err := c.Wait(ctx, id); err != nil && !errors.Is(err, launcher.ErrNotThere) { // one with a coordinator of its own ends with it
			return err
		}
	}
	if o.JSON {
		return jsonout.Print(io.Stdout, &stoppedShown{Stopped: stopped})
	}
	if len(stopped) == 0 {
		io.Say("nothing to stop")
	}
	return nil
}

// stop --json prints this; docs/json.md is its contract.
type stoppedShown struct {
	jsonout.Header
	Stopped []string `json:"stopped"`
}

// ask stops the job; with --kill it asks again, which kills.
func (o *stopOptions) ask(ctx context.Context, c *launcher.Client, id string) ([]string, error) {
	stopped, err := c.Stop(ctx, id, launcher.CodeStopped, "stopped by golaunch stop")
	if err != nil || !o.kill {
		return stopped, err
	}
	_, err = c.Stop(ctx, id, launcher.CodeStopped, "stopped by golaunch stop")
	return stopped, err
}
