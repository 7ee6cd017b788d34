package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/agent/internal/notice"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/sampling"
	"github.com/golaunch/golaunch/agent/internal/saves"
	"github.com/golaunch/golaunch/agent/internal/stall"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/placement"
)

// runRanks starts every rank, on as many threads as there are CPUs, and waits until all have exited.
func (a *attempt) runRanks(scope ranks.Scope) {
	var starting, running sync.WaitGroup
	began := time.Now()
	all := make([]ranks.Rank, len(a.order.Group.Bundles))
	next := make(chan int, len(all))
	for i := range all {
		next <- i
	}
	close(next)
	for range min(runtime.GOMAXPROCS(0), len(all)) { // a goroutine for each rank would grow a stack for each
		starting.Go(func() {
			for i := range next {
				b := a.order.Group.Bundles[i]
				r, err := a.startRank(scope, b)
				if err != nil {
					a.startFailed(b, err)
					continue
				}
				r.Reported = make(chan struct{})
				all[i] = r
				a.mu.Lock()
				a.ranks = append(a.ranks, r)
				a.mu.Unlock()
				a.noteFork(r.Process)
				running.Go(func() { a.awaitExit(r) })
			}
		})
	}
	starting.Wait()
	a.forks.release()
	if len(a.started()) == len(all) {
		if a.forks.report.Forked > 0 {
			a.forks.report.Forking = time.Since(began)
		}
		a.report(a.startedReport(all))
		ranks.Dismiss(scope)
		a.forkAhead()
		a.job.bundles.release()
		defer a.watch(scope, all)()
	}
	running.Wait()
}

func (a *attempt) startRank(scope ranks.Scope, b placement.Bundle) (ranks.Rank, error) {
	if kept, ok := a.former[b.Rank]; ok {
		return a.resumeRank(b, kept)
	}
	output, err := a.job.work.Output.Dir.Rank(a.outputOptions(b))
	if err != nil {
		return ranks.Rank{}, err
	}
	command := a.command(b, output)
	if a.forks.forker != nil {
		command.Forker, command.ForkOnly = a.forks.forker, a.job.work.Task.PreloadStrict
	}
	r := ranks.Rank{Bundle: b, Since: time.Now(), Output: output, RAS: ncclprobe.AddressIn(command.Env), Env: command.Env}
	r.Process, err = ranks.Start(scope, command, keptRank{b.Rank, r.Since, r.RAS}, output.Ends()...)
	output.Started()
	if err != nil {
		a.closeOutputs(r)
		return ranks.Rank{}, err
	}
	return r, nil
}

func (a *attempt) outputOptions(b placement.Bundle) logs.RankOptions {
	o := a.job.work.Output.Of(Speaker{
		Node: a.node(), Attempt: a.order.Attempt, Rank: b.Rank, LocalRank: b.LocalRank, WorldSize: a.order.World.Ranks(),
	})
	o.Exact = a.job.node.starter.Keeper != nil
	return o
}

// startedReport returns the report that all ranks run. Either all ranks of an attempt have GPUs, or
// no rank has one.
func (a *attempt) startedReport(all []ranks.Rank) job.Started {
	s := job.Started{Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt, Imports: a.forks.report}
	for _, r := range all {
		s.PIDs = append(s.PIDs, r.Process.Pid())
		if r.Bundle.GPU != nil {
			s.RAS = append(s.RAS, r.RAS)
		}
	}
	return s
}

// watch starts whatever observes the ranks, and the delivery of notices. The caller must call stop
// once the ranks have exited.
func (a *attempt) watch(scope ranks.Scope, all []ranks.Rank) (stop func()) {
	node, task := a.job.node, a.job.work.Task
	name, unit, number := a.node(), a.order.Unit, a.order.Attempt
	over := make(chan struct{})
	saved := saves.New(saves.Options{
		Base: job.Saved{Node: name, Unit: unit, Attempt: number}, NodeRank: a.order.Group.NodeRank, Ranks: a.order.World.WorldSize, Nodes: a.order.World.Nodes,
		Dir: task.checkpointDir(), Places: a.job.places, Rights: a.job.rights(), Report: func(e job.Saved) { a.job.report(e) },
	})
	haste := &haste{attempt: a, scope: scope, ranks: all, saved: saved}
	go a.notices.Deliver(notice.Receiver{
		Ranks: all, Warn: node.Warn,
		Signal: func() {
			if task.NoticeSignal != 0 {
				a.signal(task.NoticeSignal)
			}
		},
		Told:  haste.begin,
		Ready: func() { a.report(job.Ready{Node: name, Unit: unit, Attempt: number}) },
	}, over)
	stops := []func(){
		node.sampler.Measure(sampling.Gang{Job: a.job.id, Attempt: number, Scope: scope, Ranks: all, Looked: saved.Look}, node.session.Node.GPUs),
		saved.Stop,
		haste.end,
		ranks.ReportSteps(all, node.hooks.stepTicks, func(step int64, ago time.Duration) {
			a.job.report(job.Stepped{Node: name, Unit: unit, Attempt: number, Step: step, Ago: ago})
		}),
		stall.Watch(stall.Options{
			Base:     job.Stalled{Node: name, Unit: unit, Attempt: number},
			AsksNCCL: a.order.Group.NodeRank == a.order.World.FirstNode, Limit: task.HangTimeout, Ticks: node.hooks.stallTicks, Monitor: a.monitor(),
			Scope: scope, Ranks: all, Report: func(e job.Stalled) { a.job.report(e) }, Warn: node.Warn,
		}),
		ncclprobe.CompareLibraries(all, node.hooks.ncclLoaded, func(differing string) {
			node.Warn(fmt.Errorf("%s, attempt %d: the ranks have loaded different NCCLs: %s; look at their LD_LIBRARY_PATH and site-packages",
				name, number, differing))
		}),
		func() { close(over) },
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// checkpointDir returns the absolute path of the directory that the user has named. It is empty if
// the user has named none.
func (t Task) checkpointDir() string {
	if t.CheckpointDir == "" {
		return ""
	}
	dir, err := filepath.Abs(filepath.Join(t.Dir, t.CheckpointDir))
	if filepath.IsAbs(t.CheckpointDir) || err != nil {
		return filepath.Clean(t.CheckpointDir)
	}
	return dir
}

// awaitExit reports the exit of a rank once the rank's last output is read.
func (a *attempt) awaitExit(r ranks.Rank) {
	<-r.Process.Done()
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	if err := r.Output.Flush(ctx); err != nil {
		a.job.node.Warn(err)
	}
	cancel()
	at := r.Process.At()
	a.exited(r.Bundle, r.Process.Exit(), at, at.Sub(r.Since), r.Output)
	close(r.Reported)
	if !r.Process.Exit().OK() && !a.wasStopped() {
		a.forks.ahead.Hurry()
		if a.setup.hyperPod != nil {
			a.setup.hyperPod.Ended(r.Bundle.Rank)
		}
		a.gather(job.CrashEvidence)
	}
}
