package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ahead"
	"github.com/golaunch/golaunch/agent/internal/hyperpod"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/lighthouse"
	"github.com/golaunch/golaunch/agent/internal/notice"
	"github.com/golaunch/golaunch/agent/internal/rankmonitor"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/rankenv"
)

// flushLimit bounds the wait for the last lines of a rank when the disk or the console is slow.
const flushLimit = 5 * time.Second

// attempt is one attempt of a unit. A unit is the ranks on this node that restart together.
type attempt struct {
	job   *jobOnNode
	order job.Start
	setup rankSetup

	// mu guards scope, halt.ordered, ranks, requests and reports. The goroutine that follows orders
	// and the attempt's own goroutine share these fields.
	mu    sync.Mutex
	scope ranks.Scope
	halt  halt
	// ranks are the ranks that were started.
	ranks []ranks.Rank
	// requests are what the ranks have asked for through their monitor.
	requests []rankmonitor.Request
	reports  []job.Event

	forks    forks
	notices  *notice.Notices
	evidence evidence
	exits    exits
	// former are the ranks that an earlier agent has started, by rank.
	former map[int]keeper.Rank
	// gone is closed when no process of the attempt is alive.
	gone chan struct{}
}

// halt says whether an attempt was ordered to stop. In that case cancel has ended ctx.
type halt struct {
	ordered bool
	ctx     context.Context
	cancel  context.CancelFunc
}

// rankSetup is what the ranks of an attempt on this node share.
type rankSetup struct {
	env *rankenv.Base
	// bindings says where each rank runs, by local rank.
	bindings []bind.Binding
	// proxy is where the ranks find the store's proxy, if they have one.
	proxy netip.AddrPort
	// lighthouse is the lighthouse of a replica group, at lighthousePort.
	lighthouse     *lighthouse.Server
	lighthousePort int
	// monitor is the ranks' monitor, if they want one. hyperPod is HyperPod's socket, if they want
	// that instead.
	monitor  *rankmonitor.Server
	hyperPod *hyperpod.Server
	// err says why the ranks cannot start.
	err error
}

func newAttempt(j *jobOnNode, o job.Start) *attempt {
	a := &attempt{job: j, order: o, notices: notice.New(), evidence: newEvidence(), gone: make(chan struct{})}
	a.forks.release = func() {}
	a.forks.ahead = ahead.New()
	ctx, cancel := context.WithCancel(context.Background())
	a.halt = halt{ctx: ctx, cancel: cancel}
	return a
}

// setUp sets the ranks' environment and their bindings. Former ranks stay where they run.
func (a *attempt) setUp() {
	j, s := a.job, &a.setup
	if s.err = j.err; s.err != nil {
		return
	}
	s.env = j.work.Task.Env
	if presets := j.work.Task.Presets; presets != nil {
		s.env = s.env.With(presets(a.order.World.Network))
	}
	s.bindings, s.err = j.bind(a.order.World)
	if s.err != nil && len(a.former) == len(a.order.Group.Bundles) {
		s.bindings, s.err = make([]bind.Binding, a.order.World.LocalSize), nil
	}
}

// run starts the ranks, waits until all their processes have ended, and reports each step.
func (a *attempt) run() {
	defer close(a.gone)
	defer a.halt.cancel()
	defer a.closeServers()
	defer a.forks.ahead.Settle()
	defer func() { a.forks.release() }()
	scope, err := a.open()
	if err == nil && scope != nil {
		err = a.job.arrive(a.halt.ctx)
	}
	if err == nil && scope != nil {
		err = a.awaitImports()
	}
	if err != nil {
		a.startFailed(a.order.Group.Bundles[0], err)
	}
	if scope != nil {
		if err == nil {
			a.runRanks(scope)
			a.endLeftovers(scope)
		}
		a.evidence.seal()
		err := scope.Close()
		if err == nil || errors.Is(err, keeper.ErrGone) {
			a.closeOutputs(a.started()...)
		}
		if err != nil {
			a.job.node.fail(fmt.Errorf("cannot end all processes of attempt %d: %w", a.order.Attempt, err))
			return // do not report Stopped: these ranks may live, and must not be started elsewhere
		}
		a.writeBundle()
	}
	a.report(job.Stopped{Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt})
}

// succeeded reports whether every rank here was started and has exited with 0.
func (a *attempt) succeeded() bool {
	started := a.started()
	for _, r := range started {
		if !r.Process.Exit().OK() {
			return false
		}
	}
	return len(started) == len(a.order.Group.Bundles)
}

// endLeftovers ends processes, such as an upload, that ranks have left running when they succeeded.
// Closing the scope kills processes that do not end in time.
func (a *attempt) endLeftovers(scope ranks.Scope) {
	if a.wasStopped() || !a.succeeded() {
		return
	}
	task := a.job.work.Task
	err := ranks.EndLeftovers(scope, task.Linger, task.Grace, a.wasStopped, func(left string) {
		a.job.node.Say(fmt.Sprintf("%s: the ranks have exited with 0 and left running: %s. SIGTERM now, SIGKILL after %v; --linger gives them time",
			a.node(), left, task.Grace))
	})
	if err != nil && !errors.Is(err, keeper.ErrGone) {
		a.job.node.Warn(fmt.Errorf("attempt %d: end what ranks have left running: %w", a.order.Attempt, err))
	}
}

// node is the name of this node.
func (a *attempt) node() string { return a.job.node.session.Node.Name }

// closeOutputs closes the output files of ranks that have ended.
func (a *attempt) closeOutputs(ended ...ranks.Rank) {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	for _, r := range ended {
		if err := r.Output.Close(ctx); err != nil {
			a.job.node.Warn(err)
		}
	}
}

// open makes the scope of the attempt's processes. It returns nil if the attempt was stopped before
// it began. It returns a scope and an error if ranks live that cannot continue.
func (a *attempt) open() (ranks.Scope, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.halt.ordered && a.scope == nil:
		return nil, nil
	case a.setup.err != nil, a.scope != nil:
		return a.scope, a.setup.err
	}
	scope, err := a.job.node.starter.Scope(a.scopeName(a.order.Attempt), keptAttempt{a.job.id, a.order, a.setup.lighthousePort})
	if err != nil {
		return nil, err
	}
	a.scope = scope
	return scope, nil
}

// scopeName is the name of the unit's scope for an attempt.
func (a *attempt) scopeName(attempt int) string {
	return fmt.Sprintf("%s-unit-%d-attempt-%d", a.job.id, a.order.Unit, attempt)
}

// adopt gives the attempt a scope, with processes that wait to become its ranks.
func (a *attempt) adopt(scope ranks.Scope) {
	a.mu.Lock()
	stopped := a.halt.ordered
	if !stopped {
		a.scope = scope
	}
	a.mu.Unlock()
	if stopped {
		a.endScope(scope.Close)
	}
}

// wasStopped reports whether the attempt was ordered to stop.
func (a *attempt) wasStopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.halt.ordered
}

// started returns the ranks that were started.
func (a *attempt) started() []ranks.Rank {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ranks)
}

func (a *attempt) report(ev job.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports = append(a.reports, ev)
	a.job.report(ev)
}

// restate repeats the reports of the attempt.
func (a *attempt) restate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ev := range a.reports {
		a.job.report(ev)
	}
	if a.setup.lighthouse != nil {
		a.setup.lighthouse.Restate()
	}
}

// stop ends the attempt once its evidence is gathered. A kill waits neither for the evidence nor
// for the grace period. stop returns at once.
func (a *attempt) stop(o job.Stop) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.halt.ordered
	a.halt.ordered = true
	a.halt.cancel()
	if o.Kill {
		a.evidence.hurry()
	}
	switch {
	case a.scope == nil:
	case o.Kill:
		go a.endScope(a.scope.Kill)
	case !again:
		go a.endScope(func() error {
			a.gather(o.Evidence)
			sig, heard := a.stopSignal(o)
			return a.scope.Stop(sig, heard, o.Grace)
		})
	}
}

func (a *attempt) endScope(end func() error) {
	if err := end(); err != nil {
		a.job.node.Warn(fmt.Errorf("attempt %d: %w", a.order.Attempt, err))
	}
}

// stopSignal returns the signal that asks the ranks to end, and whether they have already received
// it.
func (a *attempt) stopSignal(o job.Stop) (sig syscall.Signal, heard bool) {
	if sig = a.job.work.Task.StopSignal; sig != 0 {
		return sig, false
	}
	// Always send SIGTERM: the user may have sent it to golaunch alone, and a second SIGTERM does
	// no harm. But a second SIGINT interrupts a save.
	if sig = syscall.Signal(o.Signal); sig == 0 || sig == syscall.SIGTERM {
		return syscall.SIGTERM, false
	}
	reached := a.job.node.Reached
	if heard = reached != nil && reached(); !heard && sig == syscall.SIGHUP {
		sig = syscall.SIGTERM // many programs read their configuration again on SIGHUP
	}
	return sig, heard
}

func (a *attempt) signal(sig syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scope != nil {
		go a.scope.Signal(os.Signal(sig)) // Signal waits for processes that are being started
	}
}
