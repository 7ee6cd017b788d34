package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type agentOptions struct {
	launcher.Agent
	clusterFlags
	gpus          int
	labels        map[string]string
	drain, noWait bool
}

func newAgent(s *streams) *cobra.Command {
	var o agentOptions
	c := newVerb("agent --coordinator HOST:PORT | --drain", "be a node of a cluster, or ask one to leave", takes(0, 0))
	f := c.Flags()
	o.clusterFlags.declare(f)
	f.IntVar(&o.gpus, "num-gpus", 0, "declare this `number` of GPUs instead of those that are found here")
	f.StringToStringVar(&o.labels, "label", nil, "`KEY=value`: a fact about this node, such as rack=r7; repeat it for more")
	f.StringVar(&o.Name, "name", "", "this node's `name` (the host name)")
	f.StringVar(&o.Address, "address", "", "this node's `address` (the one on the route to the coordinator)")
	f.StringVar(&o.Interface, "interface", "", "network `interface` that has this node's address")
	f.StringVar(&o.PortRange, "port-range", "", portRangeUsage)
	f.StringVar(&o.LogDir, "log-dir", "", "`directory` for the ranks' output (one below the temporary directory)")
	f.StringVar(&o.Preflight, "preflight", "warn", "`what` is done if something is wrong with this node, see golaunch doctor: off, warn, exclude or fail")
	f.DurationVar(&o.DrainTime, "drain-time", 0, "how long ranks have to get ready when this agent got SIGTERM, see GOLAUNCH_NOTICE_FILE")
	f.BoolVar(&o.Adopt, "adopt", false, "ranks outlive this process until their lease is over, for the next agent with its name and directory")
	f.BoolVar(&o.AsSubmitter, "as-submitter", false, "run the ranks of each job as the user who submitted it; this agent must be root")
	f.BoolVar(&o.AllowRunAsRoot, "allow-run-as-root", false, "run as root, and so everybody's ranks who has the token; with --as-submitter: root's jobs too")
	f.StringVar(&o.Preload, "preload", "", "Python `modules` that are imported once for the ranks of jobs that have no --preload of their own: torch,transformers; or auto")
	f.StringVar(&o.Spot, "spot-notice", "", "`cloud` to ask whether it takes this machine back: aws, gcp or azure")
	f.BoolVar(&o.drain, "drain", false, "ask the node's agent to leave once no job needs it, and wait for that")
	f.BoolVar(&o.noWait, "no-wait", false, "with --drain: do not wait")
	completeFlags(c)
	c.RunE = s.does(func(*cobra.Command, []string) (int, error) {
		if f.Changed("num-gpus") {
			o.GPUs = &o.gpus
		}
		return o.run(s)
	})
	return c
}

// run makes this machine a node of a cluster, or asks a node to leave it.
func (o *agentOptions) run(io *streams) (int, error) {
	switch {
	case o.drain:
		return 0, o.drainNode(io)
	case o.coordinator == "":
		return 0, fmt.Errorf("%w: an agent needs --coordinator HOST:PORT", launcher.ErrUsage)
	}
	signals, done, err := begin()
	if err != nil {
		return 0, err
	}
	defer done()
	o.Coordinator, o.TokenFile, o.Labels, o.Signals, o.Standalone = o.coordinator, o.tokenFile, o.labels, signals, true
	o.Say, o.Warn = io.say, io.warn
	return o.Serve(context.Background())
}

// drainNode keeps new ranks from a node, and waits for as long as the jobs take that have some there.
func (o *agentOptions) drainNode(io *streams) error {
	name := o.Name
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return err
		}
	}
	ctx := context.Background()
	c, err := launcher.Connect(ctx, o.coordinator, o.tokenFile)
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := c.Drain(ctx, name)
	for err == nil && len(jobs) > 0 && !o.noWait {
		io.say(fmt.Sprintf("%s gets no more ranks, and leaves after job %s", name, jobs[0]))
		if _, err = c.Wait(ctx, jobs[0]); err == nil {
			jobs, err = c.Drain(ctx, name)
		}
		if errors.Is(err, launcher.ErrNotThere) {
			jobs, err = nil, nil // it has left
		}
	}
	if err != nil || !o.json {
		return err
	}
	return jsonout.Print(io.stdout, &drainedShown{Node: name, Jobs: jobs})
}

// drainedShown is what agent --drain prints as JSON; docs/json.md is its contract.
type drainedShown struct {
	jsonout.Header
	Node string   `json:"node"`
	Jobs []string `json:"jobs"`
}
