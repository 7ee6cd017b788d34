package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/bundle"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/core/job"
)

// evidence is what is gathered once of an attempt that fails.
type evidence struct {
	once sync.Once
	// bundle and ranks may be read when the once is done; bundle is nil if nothing was gathered.
	bundle *bundle.Bundle
	ranks  []bundle.Rank
	ctx    context.Context
	// hurry ends the gathering at once.
	hurry context.CancelFunc
}

// bundleWriter writes the evidence of a job's attempts.
type bundleWriter struct {
	writing sync.WaitGroup
	// node is held while facts about the node are gathered: one attempt has them if several fail at
	// once.
	node sync.Mutex
}

func newEvidence() evidence {
	ctx, cancel := context.WithCancel(context.Background())
	return evidence{ctx: ctx, hurry: cancel}
}

// seal waits until the evidence is gathered; from then on none is.
func (e *evidence) seal() {
	e.once.Do(func() {})
	e.hurry()
}

// gather gathers the evidence that exists only while ranks live. Once it returns they may be stopped.
func (a *attempt) gather(why job.Evidence) {
	if why == job.NoEvidence || !a.job.work.Task.Bundle {
		return
	}
	a.evidence.once.Do(func() {
		a.evidence.bundle = bundle.New(bundle.Title{
			Job: a.job.id, Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt, Time: time.Now(), Why: string(why),
		})
		a.evidence.ranks = a.bundleRanks()
		a.evidence.bundle.Ranks(a.evidence.ctx, a.evidence.ranks, why == job.HangEvidence)
	})
}

// bundleRanks describes the ranks that were started, with those that have exited.
func (a *attempt) bundleRanks() []bundle.Rank {
	a.mu.Lock()
	all, scope := slices.Clone(a.ranks), a.scope
	a.mu.Unlock()
	members, err := scope.Members()
	if err != nil {
		a.job.node.Warn(err)
	}
	found := make([]bundle.Rank, len(all))
	for i, r := range all {
		found[i] = bundle.Rank{Number: r.Bundle.Rank, Env: r.Env, RAS: r.RAS, Logs: r.Output.Files(), Rights: a.job.rights()}
		for _, m := range ranks.Busiest(members, r.Process.Pid()) {
			found[i].PIDs = append(found[i].PIDs, m.PID)
		}
	}
	slices.SortFunc(found, func(a, b bundle.Rank) int { return cmp.Compare(a.Number, b.Number) })
	return found
}

// writeBundle writes the evidence in the background, while the next attempt may run.
func (a *attempt) writeBundle() {
	b, bundles := a.evidence.bundle, &a.job.bundles
	dir := a.job.work.Output.Dir.Root()
	if b == nil || dir == nil {
		return
	}
	bundles.writing.Go(func() {
		b.Words(context.Background(), dir, a.evidence.ranks)
		if bundles.node.TryLock() {
			b.Node(context.Background(), a.job.rights())
			bundles.node.Unlock()
		}
		if _, err := b.Write(dir); err != nil {
			a.job.node.Warn(err)
		}
	})
}
