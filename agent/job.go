package agent

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/golaunch/golaunch/agent/internal/hyperpod"
	"github.com/golaunch/golaunch/agent/internal/imports"
	"github.com/golaunch/golaunch/agent/internal/jobstore"
	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/agent/internal/rankmonitor"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/saves"
	"github.com/golaunch/golaunch/agent/internal/workspaces"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

// jobOnNode is this node's part of a job. It belongs to the goroutine that follows orders.
type jobOnNode struct {
	node *membership
	id   string
	opened
	// attempts has the newest attempt of each unit.
	attempts map[int]*attempt
	stores   *jobstore.Stores
	checks   startChecks
	// imports is nil when the ranks import their modules themselves.
	imports *imports.Servers
	// endpoint is where a controller reaches the ranks. It is nil if no controller may reach them.
	endpoint *endpoint.Endpoint
	// workspace is the workspace in which the ranks run; nil if the job has none.
	workspace *workspaces.Use
	// warned are the warnings about bindings that were already given.
	warned  map[bind.Warning]bool
	bundles bundleWriter
	// places are the directories in which the job's ranks write checkpoints.
	places *saves.Places
	// learned are the limits that the job's ranks have told their monitor.
	learned rankmonitor.Learned
	// told are the checkpoints that the job's ranks have reported to HyperPod's agent.
	told   hyperpod.Saves
	ending ending
}

// opened is the Work that Agent.Open has prepared for a job.
type opened struct {
	work Work
	// err says why no rank can run here.
	err error
	// readers read the output of ranks. The output stays until the last reader has ended.
	readers sync.WaitGroup
}

// ending is a context that ends, by calling begin, when no further attempt of a job will begin.
type ending struct {
	ctx   context.Context
	begin context.CancelFunc
}

// newJob prepares for a job. An earlier agent may have kept a part of the job.
func newJob(m *membership, id string, kept keptJob) *jobOnNode {
	over, begin := context.WithCancel(context.Background())
	j := &jobOnNode{node: m, id: id, attempts: map[int]*attempt{}, warned: map[bind.Warning]bool{}, places: saves.NewPlaces(), ending: ending{over, begin}}
	j.work, j.err = m.Open(id, kept.Assignment, m.session.Node.Addr)
	if j.err == nil && j.work.Task.Preload == nil {
		j.work.Task.Preload = m.Preload
	}
	j.stores = jobstore.New(jobstore.Host{
		Job: id, Addr: m.session.Node.Addr, Others: m.session.Node.Others, Keeper: m.starter.Keeper, Listen: j.listen, OthersLive: j.othersLive,
		Wants: func() jobstore.Wants {
			task := j.work.Task
			return jobstore.Wants{Rank0: task.Rank0Store, Proxy: task.ProxyStore, Port: task.MasterPort}
		},
		Report: func(met wire.Met) { j.report(met) }, Warn: m.Warn,
	})
	j.openEndpoint(kept.Endpoint)
	j.openWorkspace(kept)
	if task := j.work.Task; j.err == nil && len(task.Preload) > 0 {
		j.imports = imports.New(imports.Options{
			Job: id, Node: m.session.Node.Name, Command: task.Command, Dir: task.Dir, Modules: task.Preload, FromLastRun: task.Preload[0] == AutoPreload,
			Env: task.Env, SampleEnv: func() []string { return j.sampleCommand().Env }, LocalSize: task.Local, Rights: j.rights(),
			Starter: m.starter, Pool: m.importPool, Say: m.Say, Warn: m.Warn, Await: j.awaitWorkspace(),
		})
	}
	quiet := make(chan struct{})
	m.living.Go(func() {
		defer close(quiet)
		j.close()
	})
	m.queries.running.Go(func() {
		<-quiet
		j.readers.Wait()
		if j.work.Close != nil {
			j.work.Close()
		}
	})
	return j
}

// openEndpoint lets a controller on another machine call the ranks. dir is the directory in which
// ranks of an earlier agent connect. It is empty if there are no such ranks.
func (j *jobOnNode) openEndpoint(dir string) {
	if j.err != nil || !j.work.Task.Endpoint || j.node.Endpoints == nil {
		return
	}
	within, err := ports.Parse(j.work.Task.Ports)
	if err != nil {
		j.err = err
		return
	}
	o := endpoint.Options{
		UID: os.Geteuid(), GID: os.Getegid(), Addr: j.node.session.Node.Addr, Ports: within, TLS: j.node.Endpoints, Dir: dir, Warn: j.node.Warn,
	}
	if u := j.work.User; u != nil {
		o.UID, o.GID = int(u.UID), int(u.GID)
	}
	j.endpoint, j.err = endpoint.Open(o)
}

// rights returns the rights of the user who owns the ranks.
func (j *jobOnNode) rights() *safefile.Rights { return (*safefile.Rights)(j.work.User) }

// close waits until nothing of the job lives or writes here.
func (j *jobOnNode) close() {
	<-j.ending.ctx.Done()
	for _, a := range j.attempts {
		<-a.gone
		a.forks.ahead.Discard(j.node.Warn)
	}
	j.imports.End()
	j.bundles.release()
	j.bundles.writing.Wait()
	j.stores.Close()
	if err := j.endpoint.Close(); err != nil {
		j.node.Warn(err)
	}
	j.closeWorkspace()
	if j.err == nil {
		j.work.Output.Dir.Done()
	}
	for _, a := range j.attempts {
		ranks.Forget(a.scope)
	}
	if k := j.node.starter.Keeper; k != nil {
		k.Drop(j.id)
	}
	j.node.sampler.Forget(j.id)
}

// kill ends all attempts at once.
func (j *jobOnNode) kill() { j.end(job.Stop{Kill: true}) }

// end stops all attempts. No further attempt begins.
func (j *jobOnNode) end(how job.Stop) {
	for _, a := range j.attempts {
		a.stop(how)
	}
	j.checks.cancel()
	j.ending.begin()
}

// start begins an attempt. If the attempt has been here before, start repeats its reports. If a
// later attempt has been here, this one counts as stopped.
func (j *jobOnNode) start(o job.Start) {
	switch a := j.attempts[o.Unit]; {
	case !j.knows(o.Unit, o.Attempt):
		store := j.stores.Of(o.Unit, o.World.Groups > 0)
		store.Resize(o.World.Ranks())
		store.Release()
		a := newAttempt(j, o)
		a.setUp()
		if a.setup.err == nil {
			a.setup.proxy, a.setup.err = store.ProxyFor(o)
		}
		a.serveLighthouse()
		a.serveMonitor()
		j.begin(a)
	case a.order.Attempt == o.Attempt:
		a.restate()
	default:
		j.reportOutlived(a, o.Attempt)
	}
}

// stop ends an attempt. If the attempt never began here, it is recorded as stopped, so that it
// cannot begin late.
func (j *jobOnNode) stop(o job.Stop) {
	if !j.knows(o.Unit, o.Attempt) {
		a := newAttempt(j, job.Start{Unit: o.Unit, Attempt: o.Attempt})
		a.stop(job.Stop{Kill: true})
		j.begin(a)
		return
	}
	if a := j.attempts[o.Unit]; a.order.Attempt == o.Attempt {
		a.stop(o)
	} else {
		j.reportOutlived(a, o.Attempt)
	}
}

// notify tells the ranks of an attempt that they will be stopped.
func (j *jobOnNode) notify(o job.Notice) {
	if a := j.attempts[o.Unit]; a != nil && a.order.Attempt == o.Attempt {
		a.notices.Add(o.Within, o.Why)
	}
}

// reportOutlived reports a former attempt as stopped once a later attempt, a, has ended, because
// then no rank of either attempt lives. A coordinator whose log was torn may wait for this report.
func (j *jobOnNode) reportOutlived(a *attempt, former int) {
	j.node.living.Go(func() {
		<-a.gone
		j.report(job.Stopped{Node: j.node.session.Node.Name, Unit: a.order.Unit, Attempt: former})
	})
}

// knows reports whether an attempt of a unit, or a later one, has been on this node.
func (j *jobOnNode) knows(unit, number int) bool {
	a := j.attempts[unit]
	return a != nil && a.order.Attempt >= number
}

// begin runs the newest attempt of a unit, once the previous attempt has ended.
func (j *jobOnNode) begin(a *attempt) {
	old := j.attempts[a.order.Unit]
	j.attempts[a.order.Unit] = a
	go func() {
		if old != nil {
			// The coordinator orders an attempt when it believes that the previous one has ended.
			// Make sure that it has.
			old.stop(job.Stop{Kill: true})
			<-old.gone
			ranks.Forget(old.scope)
			if scope := old.forks.ahead.Take(a.order.Attempt, j.node.Warn); scope != nil {
				a.adopt(scope)
			}
		}
		a.run()
	}()
}

// othersLive reports whether ranks of another unit live here.
func (j *jobOnNode) othersLive(unit int) bool {
	for id, a := range j.attempts {
		select {
		case <-a.gone:
		default:
			if id != unit {
				return true
			}
		}
	}
	return false
}

func (j *jobOnNode) report(ev any) { j.node.report(j.id, ev) }

// restate repeats the reports of the newest attempts.
func (j *jobOnNode) restate() {
	j.report(wire.Opened{})
	for _, a := range j.attempts {
		a.restate()
	}
}

// listen takes the wanted port of a host. If wanted is 0, it takes a free port from the ports that
// the job may use.
func (j *jobOnNode) listen(host string, wanted int) (net.Listener, error) {
	if wanted != 0 {
		return masterport.Listen(host, wanted)
	}
	r, err := ports.Parse(j.work.Task.Ports)
	if err != nil {
		return nil, err
	}
	return masterport.Free(j.node.queries.ctx, r.Or(masterport.Low), host)
}
