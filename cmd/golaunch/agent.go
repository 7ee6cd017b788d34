package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type agentOptions struct {
	launcher.Agent
	cli.ClusterFlags
	gpus          int
	labels        map[string]string
	drain, noWait bool
}

func newAgent(s *cli.Console) *cobra.Command {
	var o agentOptions
	c := cli.NewVerb("agent --coordinator HOST:PORT | --drain", "join a cluster as a node, or ask a node to leave", cli.Args(0, 0))
	f := c.Flags()
	o.ClusterFlags.Declare(f)
	f.IntVar(&o.gpus, "num-gpus", 0, "declare this `number` of GPUs, instead of those found")
	f.StringToStringVar(&o.labels, "label", nil, "`KEY=value`: a label of this node, such as rack=r7; repeat it for more")
	f.StringVar(&o.Name, "name", "", "this node's `name` (the host name)")
	f.StringVar(&o.Address, "address", "", "this node's `address` (the one on the route to the coordinator)")
	f.StringVar(&o.Interface, "interface", "", "network `interface` that has this node's address")
	f.StringVar(&o.PortRange, "port-range", "", cli.PortRangeUsage)
	f.StringVar(&o.LogDir, "log-dir", "", "`directory` for the ranks' output (in the temporary directory)")
	f.StringVar(&o.Preflight, "preflight", "warn", "`action` if the checks of golaunch doctor find an error on this node: off, warn, exclude or fail")
	f.DurationVar(&o.DrainTime, "drain-time", 0, "how long ranks may prepare for their end after this agent gets SIGTERM, see GOLAUNCH_NOTICE_FILE")
	f.BoolVar(&o.Adopt, "adopt", false, "ranks outlive this agent until their lease ends, for the next agent with its name and directory")
	f.BoolVar(&o.AsSubmitter, "as-submitter", false, "run the ranks of each job as the user who submitted it; this agent must be root")
	f.BoolVar(&o.AllowRunAsRoot, "allow-run-as-root", false, "allow ranks to run as root, for anyone with the token; with --as-submitter, allow root's jobs")
	f.StringVar(&o.Preload, "preload", "", "Python `modules` to import once for the ranks of jobs without --preload: torch,transformers; or auto")
	f.StringVar(&o.Spot, "spot-notice", "", "`cloud` to ask for notices that it takes this machine back: aws, gcp or azure")
	f.BoolVar(&o.drain, "drain", false, "ask the node's agent to leave once no job needs it, and wait until it has")
	f.BoolVar(&o.noWait, "no-wait", false, "with --drain: do not wait")
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		if f.Changed("num-gpus") {
			o.GPUs = &o.gpus
		}
		return o.run(s)
	})
	return c
}

// run makes this machine a node of a cluster, or asks a node to leave it.
func (o *agentOptions) run(io *cli.Console) (int, error) {
	switch {
	case o.drain:
		return 0, o.drainNode(io)
	case o.ClusterFlags.Coordinator == "":
		return 0, fmt.Errorf("%w: an agent needs --coordinator HOST:PORT", launcher.ErrUsage)
	}
	heard, err := hearSignals()
	if err != nil {
		return 0, err
	}
	o.Agent.Coordinator, o.Agent.TokenFile = o.ClusterFlags.Coordinator, o.ClusterFlags.TokenFile
	o.Labels, o.Signals, o.Standalone = o.labels, heard, true
	o.Say, o.Warn = io.Say, io.Warn
	return o.Serve(context.Background())
}

// drainNode keeps new ranks from a node and waits until the jobs with ranks there have ended.
func (o *agentOptions) drainNode(io *cli.Console) error {
	name := o.Name
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return err
		}
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.ClusterFlags.Coordinator, o.ClusterFlags.TokenFile)
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := c.Drain(ctx, name)
	for err == nil && len(jobs) > 0 && !o.noWait {
		io.Say(fmt.Sprintf("%s gets no more ranks, and leaves after job %s", name, jobs[0]))
		if _, err = c.Wait(ctx, jobs[0]); err == nil {
			jobs, err = c.Drain(ctx, name)
		}
		if errors.Is(err, launcher.ErrNotThere) {
			jobs, err = nil, nil // the node has left
		}
	}
	if err != nil || !o.JSON {
		return err
	}
	return jsonout.Print(io.Stdout, &drainedShown{Node: name, Jobs: jobs})
}

// drainedShown is the JSON of agent --drain; docs/json.md is its contract.
type drainedShown struct {
	jsonout.Header
	Node string   `json:"node"`
	Jobs []string `json:"jobs"`
}
