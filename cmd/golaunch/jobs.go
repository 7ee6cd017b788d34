package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type statusOptions struct {
	cli.ClusterFlags
	all, ras bool
}

func newStatus(s *cli.Console) *cobra.Command {
	var o statusOptions
	c := cli.NewVerb("status [JOB]", "print a cluster's nodes and jobs", cli.Args(0, 1))
	o.declare(c.Flags())
	c.Flags().BoolVar(&o.ras, "ras", false, "also what the RAS service of JOB's NCCL says; for jobs in trouble, since some versions of NCCL have crashed when asked")
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.print(s, strings.Join(args, ""), true) })
	return c
}

// newJobs returns status without the nodes.
func newJobs(s *cli.Console) *cobra.Command {
	var o statusOptions
	c := cli.NewVerb("jobs", "print a cluster's jobs", cli.Args(0, 0))
	o.declare(c.Flags())
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) { return 0, o.print(s, "", false) })
	return c
}

func (o *statusOptions) declare(f *pflag.FlagSet) {
	o.ClusterFlags.Declare(f)
	f.BoolVar(&o.all, "all", false, "also the jobs that are over")
}

// print prints the nodes, if wanted, and the jobs, or only one.
func (o *statusOptions) print(io *cli.Console, only string, nodes bool) error {
	if o.ras && only == "" {
		return fmt.Errorf("%w: --ras is about one job: golaunch status JOB --ras", launcher.ErrUsage)
	}
	ctx := context.Background()
	connected, err := sources.Target{Coordinator: o.Coordinator, TokenFile: o.TokenFile, Job: only}.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sources.Close(connected) }() // they have answered
	s, err := o.query(ctx, connected, launcher.Query{Job: only, Jobs: !nodes, Open: !o.all && only == "", Brief: !o.JSON})
	if err != nil {
		return err
	}
	shown := clusterShown{Version: s.Version, Since: s.Since, Coordinators: showCoordinators(s.Coordinators, s.Silent)}
	for _, n := range s.Nodes {
		shown.Nodes = append(shown.Nodes, showNode(n))
	}
	for _, j := range s.Jobs {
		shown.Jobs = append(shown.Jobs, showJob(j))
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
		return jsonout.Print(io.Stdout, &shown)
	case o.JSON:
		return jsonout.Print(io.Stdout, &jobsShown{Jobs: shown.Jobs})
	}
	return shown.write(io.Stdout, nodes)
}

// query asks a cluster, or each job that has a coordinator of its own here, of which one may have ended meanwhile.
func (o *statusOptions) query(ctx context.Context, connected map[string]view.Source, q launcher.Query) (launcher.Status, error) {
	var all launcher.Status
	var errs []error
	for _, at := range slices.Sorted(maps.Keys(connected)) {
		s, err := connected[at].Query(ctx, q)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(connected) == 1 {
			return s, nil
		}
		all.Version, all.Since = s.Version, s.Since
		all.Coordinators, all.Silent = append(all.Coordinators, s.Coordinators...), append(all.Silent, s.Silent...)
		all.Nodes, all.Jobs = append(all.Nodes, s.Nodes...), append(all.Jobs, s.Jobs...)
	}
	if len(errs) == len(connected) {
		return all, errors.Join(errs...)
	}
	return all, nil
}

// samplesLimit bounds the wait for nodes that are asked what their ranks do.
const samplesLimit = 2 * time.Second

// inquire asks what the ranks of a job do, and what its NCCL says, if that is wanted.
func (o *statusOptions) inquire(ctx context.Context, s view.Source, status launcher.JobStatus, j *jobShown) error {
	if j.Result == nil && !j.Reservation {
		ranks, slow, err := view.Look(ctx, s, status, samplesLimit)
		if err != nil {
			return err
		}
		j.Progress, j.Stragglers = view.ShowProgress(ranks, time.Now()), view.ShowSlow(slow, time.Now())
		for _, r := range ranks {
			j.Processes = append(j.Processes, view.Show(r))
		}
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

// What status and jobs print as JSON; docs/json.md is its contract.
type (
	clusterShown struct {
		jsonout.Header
		Version string    `json:"version"`
		Since   time.Time `json:"since"`
		// Coordinators are there if the cluster has several.
		Coordinators []coordinatorShown `json:"coordinators"`
		Nodes        []nodeShown        `json:"nodes"`
		Jobs         []jobShown         `json:"jobs"`
	}
	jobsShown struct {
		jsonout.Header
		Jobs []jobShown `json:"jobs"`
	}
	coordinatorShown struct {
		Address string `json:"address"`
		State   string `json:"state"`
	}
	nodeShown struct {
		Name    string            `json:"name"`
		Address netip.Addr        `json:"address"`
		State   string            `json:"state"`
		GPUs    int               `json:"gpus"`
		Used    int               `json:"gpus_used"`
		CPUs    int               `json:"cpus"`
		Labels  map[string]string `json:"labels"`
		Holds   []holdShown       `json:"holds"`
		// Excluded has no job where new jobs pass the node over.
		Excluded []exclusionShown `json:"excluded"`
	}
	exclusionShown struct {
		Job   string    `json:"job,omitempty"`
		Why   string    `json:"why"`
		Until time.Time `json:"until"`
	}
	holdShown struct {
		Job  string `json:"job"`
		GPUs []int  `json:"gpus"`
	}
	jobShown struct {
		ID          string           `json:"id"`
		Phase       string           `json:"phase"`
		Waits       string           `json:"waits,omitempty"`
		Command     string           `json:"command"`
		Submitted   time.Time        `json:"submitted"`
		Finished    time.Time        `json:"finished"`
		Detached    bool             `json:"detached"`
		Submitter   *uint32          `json:"submitter_uid,omitempty"`
		Reservation bool             `json:"reservation"`
		Within      string           `json:"within,omitempty"`
		Attempt     int              `json:"attempt"`
		Restarts    int              `json:"restarts"`
		MaxRestarts int              `json:"max_restarts"`
		Nodes       []string         `json:"nodes"`
		Ranks       int              `json:"ranks"`
		GPUs        int              `json:"gpus"`
		Result      *launcher.Result `json:"result,omitempty"`
		// Goodput is that of the result when there is one.
		Goodput *launcher.Goodput `json:"goodput,omitempty"`
		// RAS is what its NCCL says, if it was asked.
		RAS *launcher.RAS `json:"ras,omitempty"`
		// Progress, Stragglers and Processes are of the job that was named, while it runs.
		Progress   *view.ProgressShown `json:"progress,omitempty"`
		Stragglers []view.SlowShown    `json:"stragglers"`
		Processes  []view.RankShown    `json:"processes"`
	}
)

// States of a node.
const (
	nodeReady   = "ready"
	nodeDrained = "drained"
	nodeSilent  = "silent"
)

// showCoordinators are those of a cluster that has several; the first leads.
func showCoordinators(all, silent []string) (shown []coordinatorShown) {
	for i, at := range all {
		c := coordinatorShown{at, "follows"}
		switch {
		case i == 0:
			c.State = "leads"
		case slices.Contains(silent, at):
			c.State = nodeSilent
		}
		shown = append(shown, c)
	}
	return shown
}

func showNode(n launcher.NodeStatus) nodeShown {
	s := nodeShown{
		Name: n.Node.Name, Address: n.Node.Addr, State: nodeReady, GPUs: len(n.Node.GPUs), CPUs: n.Node.CPUs, Labels: n.Node.Labels,
	}
	switch {
	case n.Silent > 0:
		s.State = nodeSilent
	case n.Drained:
		s.State = nodeDrained
	}
	for _, x := range n.Excluded {
		s.Excluded = append(s.Excluded, exclusionShown(x))
	}
	used := map[int]bool{}
	for _, h := range n.Holds {
		s.Holds = append(s.Holds, holdShown(h))
		for _, gpu := range h.GPUs {
			used[gpu] = true
		}
	}
	s.Used = len(used)
	return s
}

func showJob(j launcher.JobStatus) jobShown {
	return jobShown{
		ID: j.ID, Phase: j.Phase, Waits: j.Waits, Command: j.Title, Submitted: j.Submitted, Detached: j.Detached,
		Reservation: j.Reserve, Within: j.Within, Attempt: j.Attempt, Restarts: j.Restarts, MaxRestarts: j.MaxRestarts,
		Finished: j.Finished, Nodes: j.Nodes, Ranks: j.Ranks, GPUs: j.GPUs, Result: j.Result, Goodput: j.Goodput, Submitter: j.Submitter,
	}
}

func (s clusterShown) write(w io.Writer, nodes bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Coordinators) > 0 {
		fmt.Fprintln(t, "COORDINATOR\tSTATE")
		for _, c := range s.Coordinators {
			fmt.Fprintf(t, "%s\t%s\n", c.Address, c.State)
		}
		fmt.Fprintln(t)
	}
	if nodes {
		fmt.Fprintln(t, "NODE\tADDRESS\tSTATE\tGPUS\tUSED\tJOBS")
		for _, row := range s.nodeRows() {
			fmt.Fprint(t, row)
		}
		if len(s.Jobs) > 0 {
			fmt.Fprintln(t)
		}
	}
	if !nodes || len(s.Jobs) > 0 {
		fmt.Fprintln(t, "JOB\tPHASE\tRANKS\tGPUS\tAGE\tCOMMAND\tWAITS FOR")
	}
	for _, j := range s.Jobs {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.Phase, j.Ranks, j.GPUs, age(j), short(j.Command, 40), j.Waits)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.writeExcluded(w); err != nil {
		return err
	}
	return s.writeGoodput(w)
}

// writeExcluded has a line for each node that is passed over, behind the table.
func (s clusterShown) writeExcluded(w io.Writer) error {
	var b strings.Builder
	for _, n := range s.Nodes {
		for i, x := range n.Excluded {
			if i == 0 {
				fmt.Fprintf(&b, "\n%s is passed over", n.Name)
			} else {
				b.WriteByte(',')
			}
			by := "job " + x.Job
			if x.Job == "" {
				by = "new jobs"
			}
			fmt.Fprintf(&b, " by %s until %s (%s)", by, x.Until.Local().Format(time.TimeOnly), x.Why)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGoodput has a line for each job whose goodput is worth one, and what its NCCL says, behind the table.
func (s clusterShown) writeGoodput(w io.Writer) error {
	var b strings.Builder
	for _, j := range s.Jobs {
		if j.Goodput.Notable() {
			fmt.Fprintf(&b, "\ngoodput of %s: %v", j.ID, j.Goodput)
		}
		if j.Progress != nil {
			fmt.Fprintf(&b, "\n%s: %v", j.ID, j.Progress)
		}
		for _, slow := range j.Stragglers {
			b.WriteString("\nslow: " + slow.Text)
		}
		if j.RAS != nil {
			fmt.Fprintf(&b, "\nras: %v", j.RAS)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (n nodeShown) holders() string {
	if len(n.Holds) == 0 {
		return "-"
	}
	var jobs []string
	for _, h := range n.Holds {
		jobs = append(jobs, h.Job)
	}
	return strings.Join(jobs, ",")
}

// age is how long ago a job was submitted.
func age(j jobShown) string { return time.Since(j.Submitted).Round(time.Second).String() }

// short is the beginning of a text, quoted where it has what would break a table.
func short(text string, n int) string {
	if strings.ContainsAny(text, "\t\n") {
		text = strconv.Quote(text)
	}
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
