package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/failurebundle"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/core/job"
)

// evidence is gathered once, for an attempt that fails.
type evidence struct {
	once sync.Once
	// bundle and ranks may be read once seal has returned. bundle is nil if nothing was gathered.
	bundle *failurebundle.Bundle
	ranks  []failurebundle.Rank
	ctx    context.Context
	// hurry ends the gathering at once.
	hurry context.CancelFunc
}

// bundleWriter writes the evidence of a job's attempts.
type bundleWriter struct {
	writing sync.WaitGroup
	// node is locked while facts about the node are gathered. If several attempts fail at once,
	// only one of them gathers these facts.
	node sync.Mutex

	mu sync.Mutex
	// released is closed as soon as the waiting bundles may be written. It is nil if no bundle
	// waits.
	released chan struct{}
}

// bundleDelay is how long a bundle waits for the next attempt. Gathering and compressing a bundle
// would delay the start of the ranks by some 20 ms of CPU time.
const bundleDelay = 200 * time.Millisecond

// await returns a channel that release closes.
func (w *bundleWriter) await() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released == nil {
		w.released = make(chan struct{})
	}
	return w.released
}

// release lets waiting bundles be written. Its callers know that ranks have started, or that none
// will start any more.
func (w *bundleWriter) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released != nil {
		close(w.released)
		w.released = nil
	}
}

func newEvidence() evidence {
	ctx, cancel := context.WithCancel(context.Background())
	return evidence{ctx: ctx, hurry: cancel}
}

// seal waits until the evidence is gathered. Afterwards nothing is added.
func (e *evidence) seal() {
	e.once.Do(func() {})
	e.hurry()
}

// gather gathers the evidence that exists only while ranks live. Once gather returns, the ranks may
// be stopped.
func (a *attempt) gather(why job.Evidence) {
	if why == job.NoEvidence || !a.job.work.Task.Bundle {
		return
	}
	a.evidence.once.Do(func() {
		a.evidence.bundle = failurebundle.New(failurebundle.Title{
			Job: a.job.id, Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt, Time: time.Now(), Why: string(why),
		})
		a.evidence.ranks = a.bundleRanks()
		a.evidence.bundle.Ranks(a.evidence.ctx, a.evidence.ranks, why == job.HangEvidence)
	})
}

// bundleRanks describes the ranks that were started, including ranks that have exited.
func (a *attempt) bundleRanks() []failurebundle.Rank {
	a.mu.Lock()
	all, scope := slices.Clone(a.ranks), a.scope
	a.mu.Unlock()
	members, err := scope.Members()
	if err != nil {
		a.job.node.Warn(err)
	}
	found := make([]failurebundle.Rank, len(all))
	for i, r := range all {
		found[i] = failurebundle.Rank{Number: r.Bundle.Rank, Env: r.Env, RAS: r.RAS, Logs: r.Output.Files(), Rights: a.job.rights()}
		for _, m := range ranks.Busiest(members, r.Process.Pid()) {
			found[i].PIDs = append(found[i].PIDs, m.PID)
		}
	}
	slices.SortFunc(found, func(a, b failurebundle.Rank) int { return cmp.Compare(a.Number, b.Number) })
	return found
}

// writeBundle writes the evidence in the background once the next attempt runs, or once it is clear
// that none starts soon.
func (a *attempt) writeBundle() {
	b, bundles := a.evidence.bundle, &a.job.bundles
	dir := a.job.work.Output.Dir.Root()
	if b == nil || dir == nil {
		return
	}
	released := bundles.await()
	bundles.writing.Go(func() {
		select {
		case <-released:
		case <-time.After(bundleDelay):
		}
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
