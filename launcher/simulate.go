package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/preflight"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/simnode"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// simulation has the facts that the process of a simulated node needs.
type simulation struct {
	Job  Job
	Node placement.Node
	// Run is jobdir.Run's ID.
	Run string
}

func init() {
	if simnode.Is() {
		os.Exit(simulated())
	}
}

// simulate runs the coordinator in this process, and each node in a process of its own.
func (l *localRun) simulate(ctx context.Context) (report.Result, error) {
	if err := l.pack(); err != nil {
		return report.Result{}, err
	}
	count := l.job.pool()
	var machine placement.Node
	preflight.Examine(ctx, l.job.Health.Preflight, &machine, false, nil, health.ThisMachine(l.job.Output.LogDir))
	nodes := simnode.New(count)
	nodes.Stdin, nodes.Relay, nodes.Warn = l.job.Ranks.Stdin, l.relay, l.Warn
	return l.role().BeginRemote(ctx, nodes, nil, func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx)
		for i := range count {
			node := l.job.declared(i)
			node.Labels = machine.Labels
			all.Go(func() error {
				order, err := json.Marshal(simulation{l.job, node, l.files.ID})
				if err != nil {
					return err
				}
				return nodes.Run(ctx, node.Name, order)
			})
		}
		return all.Wait()
	})
}

// relay shows the output of a node's process, which has prefixes already.
func (l *localRun) relay(cmd *exec.Cmd) (*errgroup.Group, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	words, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var both errgroup.Group
	both.Go(func() error { return l.Relay(out, console.Stdout) })
	both.Go(func() error { return l.Relay(words, console.Stderr) })
	return &both, nil
}

// simulated is the main function of a simulated node's process.
func simulated() int {
	var s simulation
	if err := s.run(); err != nil {
		s.Job.printError(err)
		return 125
	}
	return 0
}

func (s *simulation) run() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	dial, err := simnode.Accept(s, cancel)
	if err != nil {
		return err
	}
	s.Job.Stopping.Standalone = true
	s.Job.Output.Stdout, s.Job.Output.Stderr = os.Stdout, os.Stderr
	l := newLocalRun(s.Job)
	l.files.ID, l.files.Warn = s.Run, nil // no Warn here, because the coordinator's process warns
	m := role.Member{Options: session.Options{Node: s.Node, Target: "the coordinator", Dial: dial}}
	_, err = l.role().RunAgent(ctx, m, signals.NewNode(cancel))
	if dir := l.files.Dir(); dir != nil {
		err = errors.Join(err, dir.Close())
	}
	return errors.Join(err, l.Console.Close())
}

// declared returns the i-th simulated node, with as many GPUs as the job wants there.
func (j Job) declared(i int) placement.Node {
	node := placement.Node{Name: "node" + strconv.Itoa(i), Addr: address.Loopback(i), CPUs: runtime.NumCPU()}
	if !j.Resources.GPU {
		return node
	}
	gpus := simulatedGPUs
	if ranks := j.Resources.PerNode[min(i, len(j.Resources.PerNode)-1)]; ranks != placement.AllGPUs {
		gpus = j.Resources.request().Takes(ranks)
	}
	for n := range gpus {
		node.GPUs = append(node.GPUs, placement.GPU{Index: n})
	}
	return node
}

// simulatedGPUs is how many GPUs a declared node has if the job wants all of them.
const simulatedGPUs = 8
