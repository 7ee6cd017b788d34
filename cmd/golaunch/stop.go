package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// codeNotSaved is the exit code of stop --save if a job has saved nothing.
const codeNotSaved = 3

type stopOptions struct {
	cli.ClusterFlags
	all, kill, noWait, save bool
	within                  time.Duration
}

func newStop(s *cli.Console) *cobra.Command {
	var o stopOptions
	c := cli.NewVerb("stop JOB | --all", "stop jobs, and wait until their processes are gone", cli.Args(0, 1))
	f := c.Flags()
	o.Declare(f)
	f.BoolVar(&o.all, "all", false, "stop all jobs")
	f.BoolVar(&o.kill, "kill", false, "kill the ranks at once")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until its processes are gone")
	f.BoolVar(&o.save, "save", false, "stop once a checkpoint is saved, and say which; exit with 3 if none was")
	f.DurationVar(&o.within, "within", 2*time.Minute, "with --save: how long to wait for a checkpoint at most")
	c.ValidArgsFunction = o.CompleteJobs(false)
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) {
		if c.Flags().Changed("within") && !o.save {
			return 0, fmt.Errorf("%w: --within is the time for --save", launcher.ErrUsage)
		}
		return o.run(s, args)
	})
	return c
}

// run stops jobs and returns when no process of them is left on any node.
func (o *stopOptions) run(io *cli.Console, args []string) (int, error) {
	switch {
	case o.all == (len(args) == 1):
		return 0, fmt.Errorf("%w: stop which job? give its id, or --all", launcher.ErrUsage)
	case o.save && o.within <= 0:
		return 0, fmt.Errorf("%w: --within %s: more than 0s, which ranks need to save", launcher.ErrUsage, o.within)
	case o.save && (o.kill || o.noWait):
		return 0, fmt.Errorf("%w: --save waits for the job's end, which --kill and --no-wait do not", launcher.ErrUsage)
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, strings.Join(args, ""))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	shown := stoppedShown{}
	if shown.Stopped, err = o.ask(ctx, c, strings.Join(args, "")); err != nil {
		return 0, err
	}
	code := 0
	for _, id := range shown.Stopped {
		if o.noWait {
			break
		}
		r, err := c.Wait(ctx, id)
		switch {
		case o.save && errors.Is(err, launcher.ErrNotThere):
			return 0, fmt.Errorf("job %s has ended before it could be asked what it has saved; its last lines say that", id)
		case err != nil && !errors.Is(err, launcher.ErrNotThere): // a job's own coordinator ends with it
			return 0, err
		case o.save && !shown.add(io, id, r, o.JSON):
			code = codeNotSaved
		}
	}
	if o.JSON {
		return code, jsonout.Print(io.Stdout, &shown)
	}
	if len(shown.Stopped) == 0 {
		io.Say("nothing to stop")
	}
	return code, nil
}

// stop --json prints this; docs/json.md is its contract.
type stoppedShown struct {
	jsonout.Header
	Stopped []string     `json:"stopped"`
	Saves   []savesShown `json:"saves"`
}

// savesShown has the known facts about a stopped job's checkpoints; nil if none was seen.
type savesShown struct {
	Job   string        `json:"job"`
	Saves *report.Saves `json:"saves,omitempty"`
}

// add shows what a job has saved, and reports whether its work is safe.
func (s *stoppedShown) add(io *cli.Console, id string, r report.Result, quiet bool) bool {
	text, saved := r.Saves.Stop()
	if r.Code == 0 {
		text, saved = r.Reason, true
	}
	if !quiet {
		io.Say(id + ": " + text)
	}
	s.Saves = append(s.Saves, savesShown{id, r.Saves})
	return saved
}

// ask stops the job; with --kill it asks again, which kills.
func (o *stopOptions) ask(ctx context.Context, c *launcher.Client, id string) ([]string, error) {
	if o.save {
		return c.Save(ctx, id, o.within, launcher.CodeStopped, "stopped by golaunch stop --save")
	}
	stopped, err := c.Stop(ctx, id, launcher.CodeStopped, "stopped by golaunch stop")
	if err != nil || !o.kill {
		return stopped, err
	}
	_, err = c.Stop(ctx, id, launcher.CodeStopped, "stopped by golaunch stop")
	return stopped, err
}
