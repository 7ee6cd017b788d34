package launcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/session"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/gpu"
	"github.com/golaunch/golaunch/internal/health"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/keep"
	"github.com/golaunch/golaunch/internal/logs"
	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/internal/speaker"
	"github.com/golaunch/golaunch/internal/spot"
	"github.com/golaunch/golaunch/internal/where"
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
	// Adopt has ranks outlive this process, for the next agent with the same Name and LogDir: it goes on with them if it comes within
	// the coordinator's lease, and else they die. A HUP among Signals then has Serve return at once, with its work undone: the process
	// must end.
	Adopt bool
	// LogDir takes the output of jobs that name no directory, below the node's name; the system's temporary directory when empty.
	// Those of the last jobs are kept, of 180 at least.
	LogDir string
	// Signals takes what this process is told: INT, TERM, HUP and QUIT make the node leave in order, and a second one kills its
	// ranks; USR1 and USR2 go to the ranks. Nil takes none.
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
	defer a.unheard()()
	j, m, err := a.membership(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	left := make(chan struct{})
	defer close(left)
	f := newFollower(cancel)
	m.leave, f.within = f.leave, a.DrainTime
	if !j.reached() {
		m.signals = f.pass
	}
	if a.Adopt {
		f.handOver = make(chan struct{})
	}
	if a.Spot != "" && !slices.Contains(spot.Clouds, a.Spot) {
		return 0, usage("spot notices of %q: %s", a.Spot, strings.Join(spot.Clouds, ", "))
	}
	go f.follow(a.Signals, left, a.hears(j, f))
	watchSpot(ctx, a.Spot, a.Warn, f.depart)
	served := make(chan struct{})
	var end struct {
		code int
		err  error
	}
	go func() {
		defer close(served)
		defer cancel(nil) // not when it hands over: that would end the ranks
		end.code, end.err = a.serve(ctx, m, f)
	}()
	select {
	case <-served:
		return end.code, end.err
	case <-f.handOver:
		a.Say(m.node.Name + " leaves its ranks to the next agent")
		return f.code(), nil
	}
}

// unheard has nobody wait for Say and Warn but the end of Serve, which calls what it returns.
func (a *Agent) unheard() (end func()) {
	say, warn := a.Say, a.Warn
	words := speaker.New(func(missed int) {
		warn(fmt.Errorf("%d messages are not shown: nobody has read those before", missed))
	})
	a.Say = func(text string) { words.Say(func() { say(text) }) }
	a.Warn = func(err error) { words.Say(func() { warn(err) }) }
	return func() { words.Finish(speaker.Patience) }
}

// hears also knows what Slurm means by a signal. All of its nodes ask Slurm for the time, one after another.
func (a Agent) hears(j Job, f *follower) func(os.Signal) {
	var e echo
	return func(s os.Signal) {
		if e.hears(j, s) {
			return
		}
		if sig, ok := s.(syscall.Signal); ok && passedOn(sig) && j.inSlurm() {
			time.AfterFunc(rand.N(time.Duration(max(1, j.place.Nodes))*time.Millisecond), func() {
				j.foretell(sig, a.Say, func(ev job.Cancel) { f.depart(agent.Departure{Why: ev.Why, Within: ev.Within}) })
			})
		}
		f.tell(s)
	}
}

func (a Agent) serve(ctx context.Context, m membership, f *follower) (code int, err error) {
	for joined := false; ; {
		n := nodeLife{Agent: a}
		err := n.serve(ctx, m, func(at netip.Addr) {
			f.welcomed()
			joined = true
			a.Say(fmt.Sprintf("%s (%v, %d GPUs) is in the cluster of %s", m.node.Name, at, len(m.node.GPUs), a.Coordinator))
		})
		switch {
		case errors.Is(err, agent.ErrDrained):
			a.Say(err.Error())
			return 0, nil
		case errors.Is(err, errTooLate), errors.Is(err, keep.ErrGone), joined && n.lost(err):
			a.Warn(fmt.Errorf("%w; its ranks are dead, and it joins again", err))
		default:
			return f.code(), err
		}
	}
}

func (a Agent) membership(ctx context.Context) (Job, membership, error) {
	addrs, err := heads(ctx, a.Coordinator)
	if err != nil {
		return Job{}, membership{}, err
	}
	token, err := mtls.LoadToken(a.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return Job{}, membership{}, err
	}
	j := Job{Network: Network{Name: a.Name, Address: a.Address, Interface: a.Interface}}
	if p, err := where.Find(where.Here()); err == nil && p != nil {
		j.place = p
		j.Network.Name = cmp.Or(j.Network.Name, p.Name)
	}
	node, err := j.thisNode(ctx)
	if err != nil {
		return Job{}, membership{}, err
	}
	node.Labels = maps.Clone(a.Labels)
	if err := tellNetwork(&node); err != nil {
		return Job{}, membership{}, fmt.Errorf("%s: %w", node.Name, err)
	}
	var devices []gpu.Device
	if node.GPUs, devices, err = a.gpus(ctx, j, node.Name); err != nil {
		return Job{}, membership{}, err
	}
	if err := a.examine(ctx, &node, devices); err != nil {
		return Job{}, membership{}, err
	}
	var others []string
	if len(addrs) > 1 {
		others = addrs
	}
	return j, membership{
		node: node, target: addrs[0], dial: func(ctx context.Context) (net.Conn, error) { return dialAt(ctx, addrs[0]) },
		elsewhere: others, tls: mtls.Client(token, mtls.Identity{Node: node.Name}),
	}, nil
}

// examine tells what is wrong with the node.
func (a Agent) examine(ctx context.Context, node *placement.Node, devices []gpu.Device) error {
	policy := cmp.Or(a.Preflight, preflightWarn)
	if !slices.Contains(preflights, policy) {
		return usage("preflight %q: off, warn, exclude or fail", policy)
	}
	findings := Health{Preflight: policy}.examine(ctx, node, a.GPUs == nil, devices, a.LogDir)
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
		return nil, nil, usage("gpus %d: 0 to %d", *a.GPUs, maxDeclared)
	}
	gpus := make([]placement.GPU, *a.GPUs)
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus, nil, nil
}

// maxDeclared bounds the GPUs of a node that exist in words only.
const maxDeclared = 1024

// nodeLife is one membership of an agent.
type nodeLife struct {
	Agent
	session *session.Session
	base    string

	mu sync.Mutex
	// open are the jobs that have ranks, or readers, here, and elsewhere the directories of those that had their own.
	open      map[string]bool
	elsewhere map[string]string
	// done counts the jobs that are over since the last were removed.
	done int
}

func (n *nodeLife) serve(ctx context.Context, m membership, welcomed func(netip.Addr)) (err error) {
	n.open, n.elsewhere = map[string]bool{}, map[string]string{}
	base, err := logBase(n.LogDir)
	if err != nil {
		return err
	}
	n.base = filepath.Join(base, m.node.Name)
	a := agent.Agent{
		Warn: n.Warn, Signals: m.signals, Leave: m.leave, Grace: DefaultGrace, Open: n.ready,
		Past: func(id string) (*logs.Dir, error) { return logs.FindDir(n.place(id), id) },
	}
	here := func(s *session.Session) {
		n.session = s
		welcomed(s.Node.Addr)
	}
	if n.Adopt {
		return n.adopt(ctx, m, &a, here)
	}
	_, err = runAgent(ctx, m, nil, &a, proc.Options{Subreaper: n.Standalone, Warn: n.Warn}, here)
	return err
}

// lost says that the session ended by itself: the node may join again. There is none when it did not get that far.
func (n *nodeLife) lost(err error) bool {
	return n.session != nil && n.session.Err() != nil && errors.Is(err, n.session.Err())
}

// ready makes ready for a job that was submitted to the cluster.
func (n *nodeLife) ready(id string, task []byte) (agent.Work, error) {
	var j Job
	d := json.NewDecoder(bytes.NewReader(task))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return agent.Work{}, fmt.Errorf("this agent does not understand the job: %w; install the same golaunch on all nodes", err)
	}
	work, err := j.task(n.session.Node.Addr)
	if err != nil {
		return agent.Work{}, err
	}
	n.hold(id, j.Output.LogDir)
	dir, err := logs.OpenDir(n.place(id), id)
	if err != nil {
		return agent.Work{}, errors.Join(err, n.release(id))
	}
	return agent.Work{
		Task:   work,
		Output: agent.Output{Dir: dir, Of: j.output(nil, n.Warn)},
		Close: func() {
			if err := errors.Join(dir.Close(), n.release(id)); err != nil {
				n.Warn(err)
			}
		},
	}, nil
}

func (n *nodeLife) hold(id, dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[id] = true
	if dir == "" {
		return
	}
	if len(n.elsewhere) >= keptJobs {
		clear(n.elsewhere)
	}
	n.elsewhere[id] = dir
}

// prunedEvery is the number of jobs after which old ones are looked for: that costs some system calls for each that is kept.
const prunedEvery = 20

func (n *nodeLife) release(id string) error {
	n.mu.Lock()
	delete(n.open, id)
	n.done++
	prune := n.done%prunedEvery == 0
	n.mu.Unlock()
	if !prune {
		return nil
	}
	return logs.Prune(n.base, keptJobs-prunedEvery, n.holds)
}

func (n *nodeLife) holds(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[id]
}

// place is where the directory of a job is.
func (n *nodeLife) place(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.elsewhere[id], n.base)
}
