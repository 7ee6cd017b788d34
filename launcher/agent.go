package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/peers"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// Agent is a node of a cluster, which runs ranks of whatever jobs the coordinator gives it.
type Agent struct {
	// Coordinator is HOST:PORT, or those of all coordinators of the cluster, with commas between them.
	Coordinator string
	// GPUs declares that many GPUs instead of those that are found here; nil declares none.
	GPUs *int
	// Labels are free-form facts about the node, such as rack=r7.
	Labels map[string]string
	// Preflight is what is done if something is wrong with the node when it starts, as Health.Preflight of a Job; "fail" ends this agent.
	Preflight string
	// Name, Address, Interface and TokenFile are as a Job's Network has them, and Standalone as its Stopping.
	Name, Address, Interface, TokenFile string
	Standalone                          bool
	// AsSubmitter has the ranks of each job run as the user who submitted it, as far as the coordinator knows him; others' jobs are refused. This
	// process must be root's.
	AsSubmitter bool
	// AllowRunAsRoot lets this process be root's, so that everybody who has the token, a submit token too, is root on this node. With
	// AsSubmitter it lets root's jobs run as root.
	AllowRunAsRoot bool
	// Adopt has ranks outlive this process, for the next agent with the same Name and LogDir: it goes on with them if it comes within
	// the coordinator's lease, and else they die. A HUP among Signals then has Serve return at once, with its work undone: the process
	// must end.
	Adopt bool
	// PortRange is where this node listens for others, as a Job's Network has it; what a job says narrows it.
	PortRange string
	// LogDir takes the output of jobs that name no directory, below the node's name; the system's temporary directory when empty.
	// Those of the last jobs are kept, of 180 at least. While another agent has it, this one is refused
	// if it has a Name and a LogDir, or Adopt, and else takes a directory of its own beside it.
	LogDir string
	// Preload are Python modules, with commas between, for jobs whose Ranks.Preload is empty.
	Preload string
	// Signals takes what this process is told: INT, TERM, HUP and QUIT make the node leave in
	// order, and a later INT or QUIT kills its ranks; USR1 and USR2 go to the ranks. Nil takes
	// none.
	Signals <-chan os.Signal
	// DrainTime is how long ranks have to get ready when the node was told to TERM, before they are stopped.
	DrainTime time.Duration
	// Spot is the cloud (aws, gcp, azure) that is asked whether it takes this machine back; none when empty.
	Spot string
	// Say is told what a person wants to know, Warn what went wrong without ending the agent; nil prints on os.Stderr. The node does not
	// wait for them: a terminal that is stopped, or a pipe that nobody reads, stops none of its ranks.
	Say  func(string)
	Warn func(error)
}

// keptJobs is the number of jobs whose output an agent keeps, those that run not counted.
const keptJobs = 200

// Serve joins the cluster, and joins it again whenever it was lost for a lease, until the node was drained. When it is told to leave
// before that, the code is that of the signal. An error before it has joined says why it cannot.
func (a Agent) Serve(ctx context.Context) (code int, err error) {
	if a.Warn == nil {
		a.Warn = warnStderr
	}
	if a.Say == nil {
		a.Say = func(text string) { fmt.Fprintln(os.Stderr, "golaunch:", text) }
	}
	if err := a.mayRun(); err != nil {
		return 0, err
	}
	defer a.unheard()()
	left := make(chan struct{})
	defer close(left)
	merged := signals.Merge(a.Signals, nil, left)
	a.Signals = merged.C
	addrs, code, err := a.heads(ctx)
	if err != nil {
		return code, err
	}
	j, join, err := a.joining(ctx, addrs)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f := signals.NewNode(cancel)
	f.DrainTime = a.DrainTime
	if a.Adopt {
		f.HandOver = make(chan struct{})
	}
	if a.Spot != "" && !slices.Contains(spot.Clouds, a.Spot) {
		return 0, usage.Errorf("spot notices of %q: %s", a.Spot, strings.Join(spot.Clouds, ", "))
	}
	if err := (Ranks{Preload: a.Preload}).checkPreload(); err != nil {
		return 0, err
	}
	node, owned, err := a.node(j, join, f, merged)
	if err != nil {
		return 0, err
	}
	go signals.Follow(a.Signals, left, a.hears(j, f))
	watchSpot(ctx, a.Spot, a.Warn, f.Depart)
	served := make(chan error, 1)
	go func() {
		defer cancel(nil) // not when it hands over: that would end the ranks
		_, err := node.Run(ctx)
		err = errors.Join(err, owned.Close())
		if r, ok := errors.AsType[*session.RefusedError](err); ok && j.Network.Name == "" && r.Another() != "" {
			a.Say(err.Error() + "; it joins as " + r.Another())
			err = a.again(ctx, j, join, r.Another(), f, merged)
		}
		served <- err
	}()
	select {
	case err := <-served:
		if errors.Is(err, agent.ErrDrained) {
			a.Say(err.Error())
			return 0, nil
		}
		return f.Code(), err
	case <-f.HandOver:
		a.Say(join.Node.Name + " leaves its ranks to the next agent")
		return f.Code(), nil
	}
}

// again is the agent under another name.
func (a Agent) again(ctx context.Context, j Job, join session.Options, name string, f *signals.Node, merged *signals.Merged) error {
	token, err := mtls.LoadToken(a.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return err
	}
	join.Node.Name, join.TLS = name, mtls.Client(token, mtls.Identity{Node: name})
	node, owned, err := a.node(j, join, f, merged)
	if err != nil {
		return err
	}
	_, err = node.Run(ctx)
	return errors.Join(err, owned.Close())
}

// node is the agent, which does what f says. Its directory is its own until owned is closed.
func (a Agent) node(j Job, join session.Options, f *signals.Node, merged *signals.Merged) (node agent.Agent, owned io.Closer, err error) {
	base, err := logBase(a.LogDir)
	if err != nil {
		return agent.Agent{}, nil, err
	}
	k := &keptFiles{warn: a.Warn, elsewhere: map[string]place{}, as: submitters{a.AsSubmitter, a.AllowRunAsRoot}}
	if k.ports, err = portRange(a.PortRange); err != nil {
		return agent.Agent{}, nil, err
	}
	token, err := mtls.LoadToken(a.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return agent.Agent{}, nil, err
	}
	if err := k.take(base, join.Node.Name, a.Adopt || a.LogDir != "" && a.Name != ""); err != nil {
		return agent.Agent{}, nil, err
	}
	if a.AsSubmitter {
		if err := errors.Join(passable(base), passable(k.base)); err != nil {
			return agent.Agent{}, nil, errors.Join(fmt.Errorf("%w; choose another directory for logs with --log-dir", err), k.owned.Close())
		}
	}
	n := agent.Agent{
		Endpoints: mtls.Server(token, mtls.Identity{Node: join.Node.Name}),
		Join:      join, Standalone: a.Standalone, Open: k.ready, Leave: f.Leave, Grace: DefaultGrace, Say: a.Say, Warn: a.Warn,
		Past: k.past, Preload: Ranks{Preload: a.Preload}.preload(),
		Joined: func(n placement.Node) {
			f.Join()
			a.Say(fmt.Sprintf("%s (%v, %d GPUs) is in the cluster of %s", n.Name, n.Addr, len(n.GPUs), a.Coordinator))
		},
	}
	if a.Adopt {
		n.Keep = k.base
	}
	if j.reached() {
		n.Reached = merged.JustStopped
	} else {
		n.Signals = f.Pass
	}
	return n, k.owned, nil
}

// unheard has nobody wait for Say and Warn but the end of Serve, which calls what it returns.
func (a *Agent) unheard() (end func()) {
	say, warn := a.Say, a.Warn
	words := asyncwriter.New(func(missed int) {
		warn(fmt.Errorf("%d messages are not shown: nobody has read those before", missed))
	})
	a.Say = func(text string) { words.Say(func() { say(text) }) }
	a.Warn = func(err error) { words.Say(func() { warn(err) }) }
	return func() { words.Finish(asyncwriter.Patience) }
}

// hears also knows what Slurm means by a signal. All of its nodes ask Slurm for the time, one after another.
func (a Agent) hears(j Job, f *signals.Node) func(os.Signal) {
	return func(s os.Signal) {
		if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) && j.inSlurm() {
			time.AfterFunc(rand.N(time.Duration(max(1, j.place.Nodes))*time.Millisecond), func() {
				j.warnOfEnd(sig, a.Say, func(ev job.Cancel) { f.Depart(agent.Departure{Why: ev.Why, Within: ev.Within}) })
			})
		}
		f.Tell(s)
	}
}

// heads are where the coordinators are. In a pod their names may come to be only when their pods run; who is told to leave meanwhile does, with that code.
func (a Agent) heads(ctx context.Context) (addrs []string, code int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f, over, heard := signals.NewNode(cancel), make(chan struct{}), make(chan struct{})
	go func() {
		signals.Follow(a.Signals, over, f.Tell)
		close(heard)
	}()
	addrs, err = pod.Await(ctx, a.Warn, func(ctx context.Context) ([]string, error) { return peers.Resolve(ctx, a.Coordinator, DefaultPort) })
	close(over)
	<-heard
	if code := f.Code(); code != 0 {
		return nil, code, fmt.Errorf("gave up waiting for the name of %s: %w", a.Coordinator, context.Cause(ctx))
	}
	return addrs, 0, err
}

// joining says what this node is, and where the coordinators are.
func (a Agent) joining(ctx context.Context, addrs []string) (Job, session.Options, error) {
	token, err := mtls.LoadToken(a.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return Job{}, session.Options{}, err
	}
	j := Job{Network: Network{Name: a.Name, Address: a.Address, Interface: a.Interface}}
	if p, err := schedenv.Find(schedenv.Here()); err == nil && p != nil {
		j.place = p
		j.Network.Name = cmp.Or(j.Network.Name, p.Name)
	}
	node, err := j.thisNode(ctx)
	if err != nil {
		return Job{}, session.Options{}, err
	}
	node.Labels = maps.Clone(a.Labels)
	if err := tellNetwork(&node); err != nil {
		return Job{}, session.Options{}, fmt.Errorf("%s: %w", node.Name, err)
	}
	var devices []gpu.Device
	if node.GPUs, devices, err = a.gpus(ctx, j, node.Name); err != nil {
		return Job{}, session.Options{}, err
	}
	if err := a.examine(ctx, &node, devices); err != nil {
		return Job{}, session.Options{}, err
	}
	var others []string
	if len(addrs) > 1 {
		others = addrs
	}
	return j, session.Options{Node: node, Target: addrs[0], Elsewhere: others, TLS: mtls.Client(token, mtls.Identity{Node: node.Name})}, nil
}

// examine tells what is wrong with the node.
func (a Agent) examine(ctx context.Context, node *placement.Node, devices []gpu.Device) error {
	policy := cmp.Or(a.Preflight, preflightWarn)
	if !slices.Contains(preflights, policy) {
		return usage.Errorf("preflight %q: off, warn, exclude or fail", policy)
	}
	system := health.Here(a.LogDir)
	system.Holds = proc.Holds
	findings := Health{Preflight: policy}.examine(ctx, node, a.GPUs == nil, devices, system)
	for _, f := range findings {
		f.Node = node.Name
		if policy == preflightFail && f.Warnable.Severity == health.Error {
			return errors.New(f.String())
		}
		a.Warn(errors.New(f.String()))
	}
	return nil
}

// gpus are the node's, with all devices that its driver shows if it is asked.
func (a Agent) gpus(ctx context.Context, j Job, name string) ([]placement.GPU, []gpu.Device, error) {
	if a.GPUs == nil {
		gpus, devices, _, err := j.gpus(ctx)
		if err != nil {
			err = driverError(name, err)
		}
		return gpus, devices, err
	}
	if *a.GPUs < 0 || *a.GPUs > maxDeclared {
		return nil, nil, usage.Errorf("gpus %d: 0 to %d", *a.GPUs, maxDeclared)
	}
	gpus := make([]placement.GPU, *a.GPUs)
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus, nil, nil
}

// maxDeclared bounds the GPUs of a node that exist in words only.
const maxDeclared = 1024
