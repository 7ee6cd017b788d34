package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/bundle"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// evidence is what is kept of an attempt that fails: once, by whoever is first to know.
type evidence struct {
	once sync.Once
	// bundle and ranks are good when the once is done; bundle is nil when nothing is kept.
	bundle *bundle.Bundle
	ranks  []bundle.Rank
	ctx    context.Context
	// hurry ends the gathering at once.
	hurry context.CancelFunc
}

func newEvidence() evidence {
	ctx, cancel := context.WithCancel(context.Background())
	return evidence{ctx: ctx, hurry: cancel}
}

// seal waits until what is being kept is, and has nothing kept any more.
func (e *evidence) seal() {
	e.once.Do(func() {})
	e.hurry()
}

// keep gathers what can be known only while ranks live. It returns when they may be stopped.
func (u *unit) keep(why job.Evidence) {
	if why == job.NoEvidence || !u.share.work.Task.Bundle {
		return
	}
	u.evidence.once.Do(func() {
		u.evidence.bundle = bundle.New(bundle.Title{
			Job: u.share.job, Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt, Time: time.Now(), Why: string(why),
		})
		u.evidence.ranks = u.witnesses()
		u.evidence.bundle.Ranks(u.evidence.ctx, u.evidence.ranks, why == job.HangEvidence)
	})
}

// witnesses are the ranks that were started, those that have ended included.
func (u *unit) witnesses() []bundle.Rank {
	u.mu.Lock()
	all, scope := slices.Clone(u.all), u.scope
	u.mu.Unlock()
	members, err := scope.Members()
	if err != nil {
		u.agent.Warn(err)
	}
	ranks := make([]bundle.Rank, len(all))
	for i, r := range all {
		ranks[i] = bundle.Rank{Number: r.bundle.Rank, Env: r.env, RAS: r.ras, Logs: r.output.Files(), Rights: u.share.rights()}
		for _, m := range busiest(members, r.process.Pid()) {
			ranks[i].PIDs = append(ranks[i].PIDs, m.PID)
		}
	}
	slices.SortFunc(ranks, func(a, b bundle.Rank) int { return cmp.Compare(a.Number, b.Number) })
	return ranks
}

// busiest are the processes of a rank, the one that has computed most first.
func busiest(members []proc.Member, leader int) []proc.Member {
	mine := slices.DeleteFunc(slices.Clone(members), func(m proc.Member) bool { return m.Leader != leader })
	slices.SortFunc(mine, func(a, b proc.Member) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.PID, b.PID)) })
	return mine
}

// file writes what was kept, beside the next attempt. Of several units that fail at once, one has the facts about the node.
func (u *unit) file() {
	b, s := u.evidence.bundle, u.share
	dir := s.work.Output.Dir.Root()
	if b == nil || dir == nil {
		return
	}
	s.filing.Go(func() {
		b.Words(context.Background(), dir, u.evidence.ranks)
		if s.looking.TryLock() {
			b.Node(context.Background(), s.rights())
			s.looking.Unlock()
		}
		if _, err := b.Write(dir); err != nil {
			u.agent.Warn(err)
		}
	})
}
