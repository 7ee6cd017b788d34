package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// flushLimit bounds the wait for the last lines of a rank that has ended, when the disk or the console is slow.
const flushLimit = 5 * time.Second

// unit is one attempt of the ranks of this node that restart together.
type unit struct {
	share *share
	agent *life
	order job.Start
	// env is the environment that the ranks share.
	env *rankenv.Base
	// bindings are by local rank, and bindErr says why none is as it should be.
	bindings []bind.Binding
	bindErr  error
	// proxy is where the ranks find the store, if that is not at the master, and proxyErr why they cannot.
	proxy    netip.AddrPort
	proxyErr error

	// mu guards scope, stopped, all, said and notice, which the agent's goroutine and the unit's own share.
	mu      sync.Mutex
	scope   scope
	stopped bool
	// halted is done once the attempt was ordered to stop.
	halted context.Context
	halt   context.CancelFunc
	// server forks ranks, if it can, until its release; imports is what came of that.
	server   proc.Forker
	release  func()
	counting sync.Mutex
	imports  job.Imports
	// all are the ranks that were started.
	all []rank
	// said are the reports of the attempt, in order.
	said []job.Event
	// notice is the earliest end of which the ranks are to hear, and noticed is sent to when there is a new one.
	notice   notice
	noticed  chan struct{}
	evidence evidence
	// exiting has ends reported one by one, and twins are the failures of which the coordinator has the evidence.
	exiting sync.Mutex
	twins   verdict.Twins
	// former are the ranks that an agent before this one has started, by rank.
	former map[int]keeper.Rank
	// gone is closed when no process of the attempt lives any more.
	gone chan struct{}
}

func newUnit(s *share, o job.Start) *unit {
	u := &unit{share: s, agent: s.agent, order: o, noticed: make(chan struct{}, 1), evidence: newEvidence(), gone: make(chan struct{})}
	u.release = func() {}
	u.halted, u.halt = context.WithCancel(context.Background())
	return u
}

// run starts the ranks, waits until they have ended and nothing of them lives, and reports each step.
func (u *unit) run() {
	defer close(u.gone)
	defer u.halt()
	defer func() { u.release() }()
	scope, err := u.open()
	if err == nil && scope != nil {
		err = u.warm()
	}
	if err != nil {
		u.fail(u.order.Group.Bundles[0], err)
	}
	if scope != nil {
		var outputs []*logs.Rank
		if err == nil {
			outputs = u.ranks(scope)
			u.settle(scope)
		}
		u.evidence.seal()
		err := scope.Close()
		if err == nil || errors.Is(err, keeper.ErrGone) {
			u.close(outputs)
		}
		if err != nil {
			u.agent.fail(fmt.Errorf("cannot end all processes of attempt %d: %w", u.order.Attempt, err))
			return // never Stopped: what may live on must not be started over
		}
		u.file()
	}
	u.report(job.Stopped{Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt})
}

// close ends the files of ranks of which nothing lives any more.
func (u *unit) close(outputs []*logs.Rank) {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	for _, o := range outputs {
		if err := o.Close(ctx); err != nil {
			u.agent.Warn(err)
		}
	}
}

// open makes the scope of the attempt's processes; it returns none when the attempt was stopped before it began, and one with an error
// when ranks live that cannot go on.
func (u *unit) open() (scope, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.stopped && u.scope == nil:
		return nil, nil
	case u.share.err != nil:
		return u.scope, u.share.err
	case u.bindErr != nil && len(u.former) < len(u.order.Group.Bundles):
		return u.scope, u.bindErr
	case u.proxyErr != nil:
		return u.scope, u.proxyErr
	}
	if u.scope != nil {
		return u.scope, nil
	}
	scope, err := u.agent.newScope(fmt.Sprintf("%s-unit-%d-attempt-%d", u.share.job, u.order.Unit, u.order.Attempt), keptUnit{u.share.job, u.order})
	if err != nil {
		return nil, err
	}
	u.scope = scope
	return scope, nil
}

// fail reports that a rank could not be started. One that was not to start any more, since the attempt was ordered to stop meanwhile, has
// not failed.
func (u *unit) fail(b placement.Bundle, err error) {
	if !u.told() {
		u.exited(b, spawnExit(err), time.Now(), 0, nil)
	}
}

// ranks starts every rank, on as many spawning threads as there are CPUs, and returns their outputs when all have ended.
func (u *unit) ranks(scope scope) []*logs.Rank {
	var running sync.WaitGroup
	var starting errgroup.Group
	began := time.Now()
	ranks := make([]rank, len(u.order.Group.Bundles))
	starting.SetLimit(runtime.GOMAXPROCS(0))
	for i, b := range u.order.Group.Bundles {
		starting.Go(func() error {
			r, err := u.spawn(scope, b)
			if err != nil {
				u.fail(b, err)
				return err
			}
			r.told = make(chan struct{})
			ranks[i] = r
			u.mu.Lock()
			u.all = append(u.all, r)
			u.mu.Unlock()
			u.count(r.process)
			running.Go(func() { u.watch(r) })
			return nil
		})
	}
	started := starting.Wait() == nil
	u.release()
	if started {
		if u.imports.Forked > 0 {
			u.imports.Forking = time.Since(began)
		}
		u.report(u.started(ranks))
		over := make(chan struct{})
		defer close(over)
		go u.giveNotice(ranks, over)
		defer u.compareNCCL(ranks)()
		defer u.watchStalls(scope, ranks)()
		defer u.tellSteps(ranks)()
		defer u.agent.sampler.measure(u, scope, ranks)()
	}
	running.Wait()
	var outputs []*logs.Rank
	for _, r := range ranks {
		if r.output != nil {
			outputs = append(outputs, r.output)
		}
	}
	return outputs
}

// started tells of ranks that all run; those of an attempt all have GPUs, or none has.
func (u *unit) started(ranks []rank) job.Started {
	s := job.Started{Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt, Imports: u.imports}
	for _, r := range ranks {
		s.PIDs = append(s.PIDs, r.process.Pid())
		if r.bundle.GPU != nil {
			s.RAS = append(s.RAS, r.ras)
		}
	}
	return s
}

// rank is a process that runs since a time, its output, and where its NCCL can be asked.
type rank struct {
	bundle  placement.Bundle
	process *proc.Process
	since   time.Time
	output  *logs.Rank
	ras     string
	env     []string
	// told is closed when its end was reported.
	told chan struct{}
}

func (u *unit) spawn(scope scope, b placement.Bundle) (rank, error) {
	if kept, ok := u.former[b.Rank]; ok {
		return u.regain(b, kept)
	}
	output, err := u.output(b)
	if err != nil {
		return rank{}, err
	}
	command := u.command(b, output.ErrorFile(), output.NoticeFile(), output.HeartbeatFile())
	command.Stdout, command.Stderr = output.Stdout, output.Stderr
	if u.server != nil {
		command.Forker, command.ForkOnly = u.server, u.share.work.Task.PreloadStrict
	}
	r := rank{bundle: b, since: time.Now(), output: output, ras: rasOf(command.Env), env: command.Env}
	r.process, err = r.start(scope, command)
	output.Started()
	if err != nil {
		u.close([]*logs.Rank{output})
		return rank{}, err
	}
	return r, nil
}

// watch reports the end of a rank as soon as its last words are read.
func (u *unit) watch(r rank) {
	<-r.process.Done()
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	if err := r.output.Flush(ctx); err != nil {
		u.agent.Warn(err)
	}
	cancel()
	at := r.process.At()
	u.exited(r.bundle, r.process.Exit(), at, at.Sub(r.since), r.output)
	close(r.told)
	if !r.process.Exit().OK() && !u.told() {
		u.keep(job.CrashEvidence)
	}
}

func (u *unit) exited(b placement.Bundle, exit report.Exit, at time.Time, lived time.Duration, output *logs.Rank) {
	e := job.Exited{
		Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt, Rank: b.Rank, Exit: exit, At: at,
		Lived: lived, Told: u.told(),
	}
	if output != nil && !exit.OK() {
		var err error
		if b.GPU != nil {
			e.Kernel = gpuFaults(lived)
		}
		e.Step, _ = lastBeat(output).step()
		e.Tail = u.advised(output.Tail())
		if e.Traceback, err = output.Traceback(); err != nil {
			u.agent.Warn(err)
		}
	}
	u.exiting.Lock()
	defer u.exiting.Unlock()
	u.spare(&e)
	u.report(e)
}

// spare leaves out evidence that adds nothing to what the coordinator has: 100,000 ranks that fail together would send it a gigabyte.
func (u *unit) spare(e *job.Exited) {
	known := !e.Exit.OK() && !u.order.OwnRules && u.twins.Known(e.Evidence(), e.At)
	if known {
		e.Alike, e.Kernel, e.Tail, e.Traceback = true, "", "", ""
	}
}

// told says that the ranks were ordered to stop.
func (u *unit) told() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stopped
}

// advised adds to the last words of a rank what to do when they are that MASTER_PORT is taken: by golaunch's own store.
func (u *unit) advised(tail string) string {
	port := cmp.Or(int(u.proxy.Port()), u.order.World.MasterPort)
	if u.share.work.Task.Rank0Store || !tellsOfPort(tail, port) {
		return tail
	}
	return fmt.Sprintf("%s\n(golaunch serves torch's store at MASTER_PORT, %d; a program with a server of its own there needs --store rank0)",
		tail, port)
}

func (u *unit) report(ev job.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.said = append(u.said, ev)
	u.share.report(ev)
}

// restate repeats the reports of the attempt.
func (u *unit) restate() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ev := range u.said {
		u.share.report(ev)
	}
}

// stop ends the attempt, once what is to be kept of it is; a kill waits neither for that nor for the grace period. It returns at once.
func (u *unit) stop(o job.Stop) {
	u.mu.Lock()
	defer u.mu.Unlock()
	again := u.stopped
	u.stopped = true
	u.halt()
	if o.Kill {
		u.evidence.hurry()
	}
	switch {
	case u.scope == nil:
	case o.Kill:
		go u.end(u.scope.Kill)
	case !again:
		go u.end(func() error {
			u.keep(o.Evidence)
			sig, heard := u.asks(o)
			return u.scope.Stop(sig, heard, o.Grace)
		})
	}
}

// asks is the signal by which a stop asks the ranks to end, and whether they have heard it.
func (u *unit) asks(o job.Stop) (sig syscall.Signal, heard bool) {
	if sig = u.share.work.Task.StopSignal; sig != 0 {
		return sig, false
	}
	// A second SIGTERM does no harm, and the first may have been sent to golaunch alone. A second SIGINT
	// interrupts a save.
	if sig = syscall.Signal(o.Signal); sig == 0 || sig == syscall.SIGTERM {
		return syscall.SIGTERM, false
	}
	if heard = u.agent.Reached != nil && u.agent.Reached(); !heard && sig == syscall.SIGHUP {
		sig = syscall.SIGTERM // programs take a HUP for a reason to read their files again
	}
	return sig, heard
}

func (u *unit) end(stop func() error) {
	if err := stop(); err != nil {
		u.agent.Warn(fmt.Errorf("attempt %d: %w", u.order.Attempt, err))
	}
}

func (u *unit) signal(sig syscall.Signal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.scope != nil {
		go u.scope.Signal(os.Signal(sig)) // it waits for processes that are being started
	}
}

func spawnExit(err error) report.Exit {
	if start := (*proc.StartError)(nil); errors.As(err, &start) {
		return start.Exit
	}
	if _, taken := errors.AsType[*logs.TakenError](err); taken {
		return report.Exit{Code: codeUsage, Spawn: err.Error()}
	}
	return report.Exit{Code: 125, Spawn: err.Error()}
}

// codeUsage is for what can never run as it was asked for.
const codeUsage = 2
