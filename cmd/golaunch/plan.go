package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

type planOptions struct {
	jobflags.Flags
	declared []string
	explain  bool
	rank     int
}

func newPlan(s *cli.Console) *cobra.Command {
	var o planOptions
	c := cli.NewVerb("plan [flags] [-- COMMAND [ARG...]]", "show where the ranks would run, and their environment", jobflags.AfterDashes)
	f := c.Flags()
	o.Declare(f)
	f.StringArrayVar(&o.declared, "node", nil, "plan for this node, `NAME,ADDRESS[,GPUS]`; repeat it for more")
	f.BoolVar(&o.explain, "explain", false, "print every variable of one rank, with its source and reason")
	f.IntVar(&o.rank, "rank", 0, "the rank that --explain is about")
	c.ValidArgsFunction = cli.CompleteCommand
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.run(s, f, args) })
	return c
}

// run shows the plan of a job. It starts nothing.
func (o *planOptions) run(io *cli.Console, f *pflag.FlagSet, command []string) error {
	if err := o.Complete(f, command); err != nil {
		return err
	}
	if o.Job.Cluster.Coordinator == jobflags.NoCoordinator {
		o.Job.Cluster.Coordinator = ""
	}
	if len(o.Job.Command) == 0 {
		o.Job.Command = []string{"COMMAND"}
	}
	nodes, err := parseDeclared(o.declared)
	if err != nil {
		return cli.BadFlag("node", err)
	}
	p, err := launcher.Plan(context.Background(), o.Job, nodes...)
	if err != nil {
		return err
	}
	if !o.explain {
		return printPlan(io.Stdout, p, o.JSON)
	}
	env, err := o.Job.Explain(p, o.rank)
	if err != nil {
		return err
	}
	shown := explained{environment: newEnvironment(env)}
	if shown.Workspace, err = o.Job.DescribeWorkspace(); err != nil {
		return err
	}
	if shown.Workspace != nil && !o.JSON {
		fmt.Fprintf(io.Stdout, "workspace %s from %s\n", workspace.Text(*shown.Workspace), o.Job.Workspace)
	}
	if o.JSON {
		return jsonout.Print(io.Stdout, &shown)
	}
	return shown.print(io.Stdout)
}

// parseDeclared reads nodes such as n1,10.0.0.9,8.
func parseDeclared(texts []string) ([]placement.Node, error) {
	var nodes []placement.Node
	for _, text := range texts {
		part := strings.Split(text, ",")
		if len(part) < 2 || len(part) > 3 || part[0] == "" {
			return nil, fmt.Errorf("%q: NAME,ADDRESS or NAME,ADDRESS,GPUS, such as n1,10.0.0.9,8", text)
		}
		addr, err := netip.ParseAddr(part[1])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		node := placement.Node{Name: part[0], Addr: addr}
		if len(part) == 3 {
			gpus, err := strconv.Atoi(part[2])
			if err != nil || gpus < 0 || gpus > maxDeclared {
				return nil, fmt.Errorf("%q: the GPUs are a number from 0 to %d", text, maxDeclared)
			}
			for i := range gpus {
				node.GPUs = append(node.GPUs, placement.GPU{Index: i})
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// maxDeclared bounds the GPUs of a node given with --node.
const maxDeclared = 1024

// plan --json prints these; docs/json.md is their contract.
type (
	planShown struct {
		jsonout.Header
		WorldSize  int        `json:"world_size"`
		Nodes      int        `json:"nodes"`
		MasterAddr netip.Addr `json:"master_addr"`
		Ranks      []planned  `json:"ranks"`
	}
	planned struct {
		Rank      int    `json:"rank"`
		LocalRank int    `json:"local_rank"`
		NodeRank  int    `json:"node_rank"`
		Node      string `json:"node"`
		Address   string `json:"address"`
		GPU       *int   `json:"gpu,omitempty"`
		GPUUUID   string `json:"gpu_uuid,omitempty"`
	}
)

func printPlan(w io.Writer, p placement.Plan, asJSON bool) error {
	ranks := make([]planned, 0, p.WorldSize())
	for _, g := range p.Groups {
		for _, b := range g.Bundles {
			r := planned{b.Rank, b.LocalRank, g.NodeRank, g.Node.Name, g.Node.Addr.String(), nil, ""}
			if b.GPU != nil {
				r.GPU, r.GPUUUID = &b.GPU.Index, b.GPU.UUID
			}
			ranks = append(ranks, r)
		}
	}
	if asJSON {
		return jsonout.Print(w, &planShown{WorldSize: p.WorldSize(), Nodes: len(p.Groups), MasterAddr: p.Master(), Ranks: ranks})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RANK\tLOCAL\tNODE RANK\tNODE\tADDRESS\tGPU")
	for _, r := range ranks {
		gpu := "-"
		if r.GPU != nil {
			gpu = strings.TrimSpace(fmt.Sprint(*r.GPU) + " " + r.GPUUUID)
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%s\t%s\n", r.Rank, r.LocalRank, r.NodeRank, r.Node, r.Address, gpu)
	}
	return t.Flush()
}

// environment has the variables that golaunch sets and removes, for plan --explain and env. It
// omits variables that a rank simply inherits: they are the user's own and may hold secrets.
type environment struct {
	Set     []rankenv.Var `json:"set"`
	Dropped []dropped     `json:"dropped"`
}

// explained is the JSON of plan --explain.
type explained struct {
	jsonout.Header
	environment
	// Workspace is the directory that golaunch would copy to the ranks; nil if there is none.
	Workspace *report.Workspace `json:"workspace,omitempty"`
}

// dropped is a variable that a rank does not get. Its value may be secret.
type dropped struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Reason string `json:"reason"`
}

func newEnvironment(env rankenv.Env) (e environment) {
	for _, v := range env.Vars {
		if v.Source != rankenv.Inherited {
			e.Set = append(e.Set, v)
		}
	}
	for _, v := range env.Dropped {
		e.Dropped = append(e.Dropped, dropped{v.Name, string(v.Source), v.Reason})
	}
	return e
}

func (e environment) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range e.Set {
		fmt.Fprintf(t, "%s=%s\t%s\t%s\n", v.Name, v.Value, v.Source, v.Reason)
	}
	for _, v := range e.Dropped {
		fmt.Fprintf(t, "(not %s)\t%s\t%s\n", v.Name, v.Source, v.Reason)
	}
	return t.Flush()
}
