// Package watch has the verbs that show the state of a cluster and its jobs: status and jobs, top,
// dashboard, logs, stacks, report and metrics.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

type statusOptions struct {
	cli.ClusterFlags
	all, ras bool
}

// NewStatus returns the verb that prints nodes and jobs.
func NewStatus(s *cli.Console) *cobra.Command {
	var o statusOptions
	c := cli.NewVerb("status [JOB]", "print a cluster's nodes and jobs", cli.Args(0, 1))
	o.declare(c.Flags())
	c.Flags().BoolVar(&o.ras, "ras", false, "also ask the RAS service of JOB's NCCL; only for jobs in trouble, since some versions of NCCL crash when asked")
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.print(s, strings.Join(args, ""), true) })
	return c
}

// NewJobs returns the verb that prints the status without nodes.
func NewJobs(s *cli.Console) *cobra.Command {
	var o statusOptions
	c := cli.NewVerb("jobs", "print a cluster's jobs", cli.Args(0, 0))
	o.declare(c.Flags())
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) { return 0, o.print(s, "", false) })
	return c
}

func (o *statusOptions) declare(f *pflag.FlagSet) {
	o.ClusterFlags.Declare(f)
	f.BoolVar(&o.all, "all", false, "also finished jobs")
}

// print prints the jobs, or only one job, and the nodes if wanted.
func (o *statusOptions) print(io *cli.Console, only string, nodes bool) error {
	if o.ras && only == "" {
		return fmt.Errorf("%w: --ras is about one job: golaunch status JOB --ras", launcher.ErrUsage)
	}
	ctx := context.Background()
	connected, err := sources.Target{Coordinator: o.Coordinator, TokenFile: o.TokenFile, Job: only}.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sources.Close(connected) }() // the sources have answered
	s, answered, silent := o.query(ctx, connected, report.Query{Job: only, Jobs: !nodes, Open: !o.all && only == "", Brief: !o.JSON})
	if !answered {
		return silent
	}
	shown := listing.Cluster{Version: s.Version, Since: s.Since, Coordinators: listing.NewCoordinators(s.Coordinators, s.Silent), Requested: s.Requested, Blocked: s.Blocked}
	for _, n := range s.Nodes {
		shown.Nodes = append(shown.Nodes, listing.NewNode(n))
	}
	for _, j := range s.Jobs {
		shown.Jobs = append(shown.Jobs, listing.Job{JobStatus: j})
	}
	for _, c := range connected {
		if only == "" {
			break
		}
		if err := o.inquire(ctx, c, s.Jobs[0], &shown.Jobs[0]); err != nil {
			return err
		}
	}
	switch {
	case o.JSON && nodes:
		err = jsonout.Print(io.Stdout, &shown)
	case o.JSON:
		err = jsonout.Print(io.Stdout, &listing.Jobs{Jobs: shown.Jobs})
	default:
		err = shown.Write(io.Stdout, nodes)
	}
	return errors.Join(err, silent)
}

// query asks all sources and merges their answers. answered is false if no source has answered. err
// says why others have not, except jobs whose own coordinator has ended meanwhile.
func (o *statusOptions) query(ctx context.Context, connected map[string]view.Source, q report.Query) (all report.Status, answered bool, err error) {
	var silent, ended []error
	for _, at := range slices.Sorted(maps.Keys(connected)) {
		s, err := connected[at].Query(ctx, q)
		switch {
		case len(connected) == 1:
			return s, err == nil, err
		case err != nil && (errors.Is(err, launcher.ErrNotThere) || sources.Ended(ctx, at)): // a job's coordinator says so itself while it ends
			ended = append(ended, err)
			continue
		case err != nil:
			silent = append(silent, fmt.Errorf("%s: %w", at, err))
			continue
		}
		answered = true
		all.Version, all.Since = s.Version, s.Since
		all.Coordinators, all.Silent = append(all.Coordinators, s.Coordinators...), append(all.Silent, s.Silent...)
		all.Requested, all.Blocked = append(all.Requested, s.Requested...), cmp.Or(all.Blocked, s.Blocked)
		all.Nodes, all.Jobs = append(all.Nodes, s.Nodes...), append(all.Jobs, s.Jobs...)
		if len(s.Charges) > 0 { // jobs with coordinators of their own have no charges
			all.Counted, all.Charges = s.Counted, append(all.Charges, s.Charges...)
		}
	}
	switch {
	case !answered:
		return all, false, errors.Join(append(silent, ended...)...)
	case len(silent) > 0: // as text: the request was right, whatever one source says
		return all, true, errors.New(errors.Join(silent...).Error())
	}
	return all, true, nil
}

// samplesLimit bounds the wait for the nodes' measurements.
const samplesLimit = 2 * time.Second

// inquire adds the activity of a job's ranks, and, if wanted, the answer of its NCCL.
func (o *statusOptions) inquire(ctx context.Context, s view.Source, status report.JobStatus, j *listing.Job) error {
	if j.Result == nil && !j.Reserve {
		ranks, slow, err := view.Look(ctx, s, status, samplesLimit)
		if err != nil {
			return err
		}
		j.AddRanks(ranks, slow, time.Now())
	}
	if c, ok := s.(*launcher.Client); ok && o.ras {
		r, err := c.RAS(ctx, j.ID)
		if err != nil {
			return err
		}
		j.RAS = &r
	}
	return nil
}
