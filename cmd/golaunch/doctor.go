package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/diagnosis"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/rankenv"
)

// exitIll is doctor's exit code when it finds an error.
const exitIll = 1

type doctorOptions struct {
	jobflags.Flags
	fabric bool
	check  fabric.Options
}

func newDoctor(s *cli.Console) *cobra.Command {
	var o doctorOptions
	c := cli.NewVerb("doctor [--json] | --fabric [flags of run]", "find what is wrong with this machine, or between the nodes of a job", nil)
	f := c.Flags()
	o.Declare(f)
	f.BoolVar(&o.fabric, "fabric", false, "test how nodes communicate, in a job with the flags of golaunch run: --nodes, --gpus-per-node, ...")
	f.StringVar(&o.check.Library, "libnccl", "", "with --fabric: load this `file`, not the libnccl.so.2 of the Python environment or the loader")
	f.DurationVar(&o.check.Limit, "test-limit", 0, "with --fabric: how long one test may take (2s; 20s with GPUs)")
	var jobs string // a flag of a job that the command line gives; variables do not count
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: it runs no command; leave out %q", launcher.ErrUsage, args)
		}
		f.Visit(func(flag *pflag.Flag) {
			if flag.Name != "json" && flag.Name != "log-dir" && flag.Name != "fabric" {
				jobs = flag.Name
			}
		})
		return nil
	}
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		switch {
		case o.fabric:
			return o.runFabric(s, f)
		case jobs != "":
			return 0, cli.BadFlag(jobs, errors.New("only with --fabric"))
		}
		return o.run(s)
	})
	return c
}

// run prints what is wrong with this machine.
func (o *doctorOptions) run(io *cli.Console) (int, error) {
	d, err := diagnosis.Diagnose(context.Background(), o.Job.Output.LogDir)
	if err != nil {
		return 0, err
	}
	if o.JSON {
		err = jsonout.Print(io.Stdout, &d)
	} else {
		err = d.Print(io.Stdout)
	}
	if slices.ContainsFunc(d.Findings, func(f diagnosis.Finding) bool { return f.Severity == string(health.Error) }) {
		return exitIll, err
	}
	return 0, err
}

// runFabric runs the fabric test as a job, in the same place where golaunch run runs jobs.
func (o *doctorOptions) runFabric(io *cli.Console, f *pflag.FlagSet) (int, error) {
	if err := o.Complete(f, nil); err != nil {
		return 0, err
	}
	if o.check.Limit < 0 {
		return 0, cli.BadFlag("test-limit", fmt.Errorf("%v: at least 0s", o.check.Limit))
	}
	if o.Job.Cluster.Detached {
		return 0, cli.BadFlag("detach", errors.New("the check is over in seconds, and its result is printed"))
	}
	if err := findCluster(&o.Flags, io); err != nil {
		return 0, err
	}
	var out bytes.Buffer
	code, err := launch(&cli.Console{Stdout: &out, Stderr: io.Stderr, JSON: io.JSON}, o.fabricJob())
	report, unread := fabric.Read(&out)
	if unread != nil {
		if code == 0 || out.Len() > 0 {
			err = errors.Join(err, unread)
		}
		return code, err
	}
	if report.Ill {
		code = exitIll
	}
	return code, tellFabric(io, report, err)
}

// tellFabric prints a report. If the test itself failed, a person still gets the report; a program
// gets only the error.
func tellFabric(io *cli.Console, report fabric.Report, err error) error {
	switch {
	case !io.JSON:
		return errors.Join(err, diagnosis.PrintFabric(io.Stdout, report))
	case err != nil:
		return err
	}
	return jsonout.Print(io.Stdout, new(diagnosis.NewFabric(report)))
}

// fabricRank runs one rank of the fabric test.
func fabricRank(options string) (int, error) {
	if err := fabric.Rank(options); err != nil {
		return 1, err
	}
	return 0, nil
}

// fabricJob returns the job of the fabric test: one attempt, golaunch's store, and ranks that see
// all GPUs of their node and run on all its CPUs.
func (o *doctorOptions) fabricJob() launcher.Job {
	j := o.Job
	o.check.Simulated = j.Resources.Simulate
	j.Command = fabric.Command(o.check)
	j.Restarts.Policy, j.Restarts.Max = "never", 0
	j.Ranks.Store, j.Ranks.Visibility, j.Ranks.Bind = "golaunch", rankenv.SeeJob, "none"
	j.Stopping.Grace = time.Second // no rank has anything to save
	prefixed := false
	j.Output.Prefix, j.Output.Ranks, j.Output.JSON = &prefixed, nil, o.JSON
	return j
}
