package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sbatch"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/signals"
	"github.com/golaunch/golaunch/launcher"
)

type runOptions struct {
	jobflags.Flags
	submission sbatch.Flags
}

// newRun returns the verb that runs a job and exits with the code of its root cause. Its name is
// golaunch, for the root, or run.
func newRun(s *cli.Console, name string) *cobra.Command {
	var o runOptions
	c := cli.NewVerb(name+" [flags] -- COMMAND [ARG...]", "run a job (the default verb)", nil)
	o.Declare(c.Flags())
	o.submission.Declare(c.Flags())
	helpAll, showVersion, nothing := false, false, false
	if name == "golaunch" {
		c.Flags().BoolVar(&helpAll, "help-all", false, "print all flags of a job")
		c.InitDefaultHelpFlag() // before the next flag
		c.Flags().BoolVarP(&showVersion, "version", "v", false, "version for golaunch")
	}
	c.ValidArgsFunction = cli.CompleteCommand
	c.PreRun = func(c *cobra.Command, args []string) { nothing = len(args) == 0 && c.Flags().NFlag() == 0 }
	runs := s.Run(func(c *cobra.Command, args []string) (int, error) {
		switch {
		case helpAll:
			return 0, c.Help()
		case nothing && !s.JSON:
			s.Print(cli.HelpOf(c.Root()) + "\n")
		}
		return o.run(s, c.Flags(), args)
	})
	c.Args = func(c *cobra.Command, args []string) error {
		if showVersion {
			return nil
		}
		return jobflags.AfterDashes(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if showVersion {
			s.Show(readBuild().String() + "\n")
			return nil
		}
		return runs(c, args)
	}
	return c
}

func (o *runOptions) run(s *cli.Console, f *pflag.FlagSet, command []string) (int, error) {
	if err := o.Complete(f, command); err != nil {
		return 0, err
	}
	if err := o.submission.Check(); err != nil {
		return 0, err
	}
	if o.submission.Slurm {
		return 0, o.submission.Submit(s, f, o.Job)
	}
	if err := findCluster(&o.Flags, s); err != nil {
		return 0, err
	}
	o.Job.Output.JSON = o.JSON
	return launch(s, o.Job)
}

// launch runs a job in this process, to its end. The job also stops on the signals in stops.
func launch(io *cli.Console, j launcher.Job, stops ...os.Signal) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("cannot find the path of this golaunch, to start it on other nodes: %w", err)
	}
	j.Ranks.Stdin, j.Stopping.Standalone, j.Network.Golaunch = true, true, self
	j.Output.Stdout, j.Output.Stderr = io.Stdout, io.Stderr
	heard, err := hearSignals(stops...)
	if err != nil {
		return 0, err
	}
	j.Stopping.Signals, j.Stopping.Stops = heard, stops
	result, err := launcher.Run(context.Background(), j)
	if err != nil && result.Code == 0 {
		io.Warn(err)
		err = nil
	}
	return result.Code, err
}

// findCluster gives the job to the coordinator on this machine, if one runs and the flags choose no
// other way to run it.
func findCluster(o *jobflags.Flags, io *cli.Console) error {
	j := &o.Job
	switch {
	case j.Cluster.Coordinator == jobflags.NoCoordinator:
		j.Cluster.Coordinator = ""
		return nil
	case j.Cluster.Coordinator != "" || j.Resources.Simulate || j.Network.Rendezvous != "" || len(j.Network.Hosts) > 0:
		return nil
	}
	c, err := launcher.Connect(context.Background(), "", j.Network.TokenFile)
	switch there := !errors.Is(err, launcher.ErrNoCoordinator); {
	case err == nil:
		j.Cluster.Coordinator = c.Target
		if err := o.ChooseGPUs(); err != nil {
			return errors.Join(err, c.Close())
		}
		if !j.Output.Quiet {
			io.Say("on the cluster of " + c.Target + ", which this machine heads; --coordinator none runs here")
		}
		return c.Close()
	case j.Cluster.Detached || there && (j.Cluster.Within != "" || j.Cluster.Backfill || j.Cluster.Priority != ""):
		return err
	case there: // the coordinator may belong to another user
		io.Warn(fmt.Errorf("this job runs here instead of on a cluster: %w", err))
	}
	return nil
}

// hearSignals returns the signals that golaunch acts on, and more. The token is in this process's
// memory, so hearSignals also makes that memory unreadable for core files and for other processes
// of the user.
func hearSignals(more ...os.Signal) (<-chan os.Signal, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot protect this process's memory: %w", err)
	}
	return signals.Listen(more...)
}
