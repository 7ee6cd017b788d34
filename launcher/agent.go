package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
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
	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/launcher/internal/peers"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/preflight"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// Agent is a node of a cluster. It runs ranks of the jobs that the coordinator gives it.
type Agent struct {
	// Coordinator is the HOST:PORT of the coordinator; several coordinators are separated by
	// commas.
	Coordinator string
	// GPUs is how many GPUs the agent declares. When nil, the agent offers the GPUs that it finds
	// on this machine.
	GPUs *int
	// Labels are free-form facts about the node, such as rack=r7.
	Labels map[string]string
	// Preflight is as in a Job's Health, except that "fail" makes Serve return an error.
	Preflight string
	// Name, Address, Interface and TokenFile are as in a Job's Network, and Standalone is as in a
	// Job's Stopping.
	Name, Address, Interface, TokenFile string
	Standalone                          bool
	// AsSubmitter runs the ranks of each job as the user who submitted it, and refuses the job if
	// the coordinator does not know that user. This process must run as root.
	AsSubmitter bool
	// AllowRunAsRoot lets this process run as root. Anyone with the token, or a submit token, can
	// then run commands as root on this node. With AsSubmitter, AllowRunAsRoot lets root's jobs run
	// as root.
	AllowRunAsRoot bool
	// Adopt lets ranks outlive this process, for the next agent with the same Name and LogDir. The
	// ranks die unless that agent starts within the coordinator's lease. A SIGHUP among Signals
	// makes Serve return at once; the process must then end.
	Adopt bool
	// PortRange is where this node listens for other nodes, as in a Job's Network. The range of a
	// job narrows it.
	PortRange string
	// LogDir gets the output of jobs that name no directory, in a subdirectory with the node's
	// name. When LogDir is empty, the output goes to the system's temporary directory. At least the
	// last 180 jobs are kept. If another agent uses the subdirectory, Serve fails if Adopt is set,
	// or if both Name and LogDir are: then the subdirectory was chosen. Otherwise this agent takes
	// another subdirectory beside that one.
	LogDir string
	// Preload is the value of Ranks.Preload for jobs in which that field is empty.
	Preload string
	// Signals has the signals of this process: SIGINT, SIGTERM, SIGHUP and SIGQUIT make the node
	// leave in order, and a later SIGINT or SIGQUIT kills its ranks; SIGUSR1 and SIGUSR2 go to the
	// ranks. When nil, the agent gets no signals.
	Signals <-chan os.Signal
	// DrainTime is how long ranks have to get ready after a SIGTERM before they are stopped.
	DrainTime time.Duration
	// Spot is the cloud (aws, gcp, azure) of this machine: the agent asks whether the cloud takes
	// the machine back. When empty, the agent asks no cloud.
	Spot string
	// Say gets messages for a user, and Warn gets problems that do not end the agent; nil prints on
	// os.Stderr. The node does not wait for these calls: a stopped terminal, or an unread pipe,
	// stops no rank.
	Say  func(string)
	Warn func(error)
}

// Serve joins the cluster, and returns when the node is drained. Whenever it has been without a
// coordinator for a lease, it joins again. If a signal asked the node to leave, the code is the
// signal's. An error before the node has joined says why it cannot join.
func (a Agent) Serve(ctx context.Context) (code int, err error) {
	if a.Warn == nil {
		a.Warn = warnStderr
	}
	if a.Say == nil {
		a.Say = func(text string) { fmt.Fprintln(os.Stderr, "golaunch:", text) }
	}
	if err := a.checkUser(); err != nil {
		return 0, err
	}
	words := printAsync(&a.Say, &a.Warn)
	defer words.Finish(asyncwriter.Patience)
	done := make(chan struct{})
	defer close(done)
	merged := signals.Merge(a.Signals, nil, done)
	a.Signals = merged.C
	addrs, code, err := a.coordinators(ctx)
	if err != nil {
		return code, err
	}
	token, err := mtls.LoadToken(a.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return 0, err
	}
	place, join, err := a.joining(ctx, addrs, token)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	n := signals.NewNode(cancel)
	n.DrainTime = a.DrainTime
	if a.Adopt {
		n.HandOver = make(chan struct{})
	}
	if a.Spot != "" && !slices.Contains(spot.Clouds, a.Spot) {
		return 0, usage.Errorf("spot notices of %q: %s", a.Spot, strings.Join(spot.Clouds, ", "))
	}
	if err := (Ranks{Preload: a.Preload}).checkPreload(); err != nil {
		return 0, err
	}
	node, owned, err := a.node(place, join, token, n, merged)
	if err != nil {
		return 0, err
	}
	go signals.Follow(a.Signals, done, a.tell(place, n))
	spot.OnNotice(ctx, a.Spot, a.Warn, func(why string, within time.Duration) {
		n.Depart(agent.Departure{Why: why, Within: within})
	})
	served := make(chan error, 1)
	go func() {
		// This call ends the ranks. After a hand-over, Serve returns and the process ends before
		// node.Run returns.
		defer cancel(nil)
		_, err := node.Run(ctx)
		err = errors.Join(err, owned.Close())
		if r, ok := errors.AsType[*session.RefusedError](err); ok && a.chosenName(place) == "" && r.Another() != "" {
			a.Say(err.Error() + "; it joins as " + r.Another())
			err = a.joinAs(ctx, r.Another(), place, join, token, n, merged)
		}
		served <- err
	}()
	select {
	case err := <-served:
		if errors.Is(err, agent.ErrDrained) {
			a.Say(err.Error())
			return 0, nil
		}
		return n.Code(), err
	case <-n.HandOver:
		a.Say(join.Node.Name + " leaves its ranks to the next agent")
		return n.Code(), nil
	}
}

// joinAs runs the agent under another name.
func (a Agent) joinAs(ctx context.Context, name string, place *schedenv.Place, join session.Options, token mtls.Token, n *signals.Node, merged *signals.Merged) error {
	join.Node.Name, join.TLS = name, mtls.Client(token, mtls.Identity{Node: name})
	node, owned, err := a.node(place, join, token, n, merged)
	if err != nil {
		return err
	}
	_, err = node.Run(ctx)
	return errors.Join(err, owned.Close())
}

// node makes the agent, which obeys n. No other agent gets its directory until owned is closed.
func (a Agent) node(place *schedenv.Place, join session.Options, token mtls.Token, n *signals.Node, merged *signals.Merged) (node agent.Agent, owned io.Closer, err error) {
	base, err := jobdir.Base(a.LogDir)
	if err != nil {
		return agent.Agent{}, nil, err
	}
	listens, err := portRange(a.PortRange)
	if err != nil {
		return agent.Agent{}, nil, err
	}
	dir, err := jobdir.TakeAgent(base, join.Node.Name, a.Adopt || a.LogDir != "" && a.Name != "", a.AsSubmitter)
	if err != nil {
		return agent.Agent{}, nil, err
	}
	endpoint.Prune(endpoint.RanksPrefix) // remove the sockets that a killed agent left behind
	node = agent.Agent{
		Endpoints:  mtls.Server(token, mtls.Identity{Node: join.Node.Name}),
		Workspaces: agent.Workspaces{Dir: filepath.Join(dir.Base, jobdir.Workspaces), Server: mtls.Server(token, mtls.Identity{Node: join.Node.Name}), Client: join.TLS},
		Join:       join, Standalone: a.Standalone, Leave: n.Leave, Grace: DefaultGrace, Say: a.Say, Warn: a.Warn,
		Past: dir.Past, Preload: Ranks{Preload: a.Preload}.preload(),
		Open: func(id string, as agent.Assignment, at netip.Addr) (agent.Work, error) {
			return a.openJob(id, as, at, dir, listens)
		},
		Joined: func(placed placement.Node) {
			n.Join()
			a.Say(fmt.Sprintf("%s (%v, %d GPUs) is in the cluster of %s", placed.Name, placed.Addr, len(placed.GPUs), a.Coordinator))
		},
	}
	if a.Adopt {
		node.Keep = dir.Base
	}
	if place.RanksHear() {
		node.Reached = merged.JustStopped
	} else {
		node.Signals = n.Pass
	}
	return node, dir, nil
}

// printAsync lets callers of say and warn go on while a terminal is stopped. The caller must call
// Finish at the end.
func printAsync(say *func(string), warn *func(error)) *asyncwriter.Writer {
	saySync, warnSync := *say, *warn
	words := asyncwriter.New(func(missed int) {
		warnSync(fmt.Errorf("%d messages are not shown: the earlier ones are still unread", missed))
	})
	*say = func(text string) { words.Say(func() { saySync(text) }) }
	*warn = func(err error) { words.Say(func() { warnSync(err) }) }
	return words
}

// tell passes signals on to the node, and finds out whether a signal is Slurm's warning. Each agent
// waits a random time first, so that the agents of a job do not all ask Slurm at once.
func (a Agent) tell(place *schedenv.Place, n *signals.Node) func(os.Signal) {
	return func(s os.Signal) {
		if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) && place.Slurm() {
			time.AfterFunc(rand.N(time.Duration(max(1, place.Nodes))*time.Millisecond), func() {
				slurm.OnSignal(sig, a.Say, func(ev job.Cancel) { n.Depart(agent.Departure{Why: ev.Why, Within: ev.Within}) })
			})
		}
		n.Tell(s)
	}
}

// coordinators returns the addresses of the coordinators. In a pod it waits for their names, which
// may be unknown until their pods run. If a signal ends the wait, code is the exit code for that
// signal.
func (a Agent) coordinators(ctx context.Context) (addrs []string, code int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := signals.During(a.Signals, cancel)
	addrs, err = pod.Await(ctx, a.Warn, func(ctx context.Context) ([]string, error) {
		return peers.Resolve(ctx, a.Coordinator, DefaultPort)
	})
	if code := stopped(); code != 0 {
		return nil, code, fmt.Errorf("gave up waiting for the name of %s: %w", a.Coordinator, context.Cause(ctx))
	}
	return addrs, 0, err
}

// chosenName is this node's name as the user or the scheduler chose it.
func (a Agent) chosenName(place *schedenv.Place) string {
	if place == nil {
		return a.Name
	}
	return cmp.Or(a.Name, place.Name)
}

// joining returns the options with which this node joins: what the node is, and where the
// coordinators are. Without a scheduler, place is nil.
func (a Agent) joining(ctx context.Context, addrs []string, token mtls.Token) (place *schedenv.Place, join session.Options, err error) {
	if place, err = schedenv.Find(schedenv.Here()); err != nil {
		place = nil // an agent runs without a scheduler too
	}
	w := machine.Wanted{Name: a.chosenName(place), Address: a.Address, Interface: a.Interface, Labels: maps.Clone(a.Labels)}
	if place != nil {
		w.GivenGPUs = place.GPUs
	}
	node, err := w.Bare()
	if err != nil {
		return nil, join, err
	}
	if err := machine.LabelNetwork(&node); err != nil {
		return nil, join, fmt.Errorf("%s: %w", node.Name, err)
	}
	var devices []gpu.Device
	if a.GPUs == nil {
		node.GPUs, devices, err = w.GPUs(ctx, node.Name)
	} else {
		node.GPUs, err = declaredGPUs(*a.GPUs)
	}
	if err == nil {
		err = a.examine(ctx, &node, devices)
	}
	if err != nil {
		return nil, join, err
	}
	join = session.Options{Node: node, Target: addrs[0], TLS: mtls.Client(token, mtls.Identity{Node: node.Name})}
	if len(addrs) > 1 {
		join.Elsewhere = addrs
	}
	return place, join, nil
}

// examine warns of what is wrong with the node.
func (a Agent) examine(ctx context.Context, node *placement.Node, devices []gpu.Device) error {
	policy := cmp.Or(a.Preflight, preflight.Warn)
	if err := preflight.Check(policy); err != nil {
		return err
	}
	system := health.ThisMachine(a.LogDir)
	system.Holds = proc.Holds
	findings := preflight.Examine(ctx, policy, node, a.GPUs == nil, devices, system)
	for _, f := range findings {
		f.Node = node.Name
		if policy == preflight.Fail && f.Warnable.Severity == health.Error {
			return errors.New(f.String())
		}
		a.Warn(errors.New(f.String()))
	}
	return nil
}

// declaredGPUs returns n GPUs, the number that the user declared.
func declaredGPUs(n int) ([]placement.GPU, error) {
	if n < 0 || n > maxDeclared {
		return nil, usage.Errorf("gpus %d: 0 to %d", n, maxDeclared)
	}
	gpus := make([]placement.GPU, n)
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus, nil
}

// maxDeclared bounds the declared GPUs of a node.
const maxDeclared = 1024
