package agent

import (
	"cmp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/saves"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// haste watches closely what the ranks of an attempt save, once a notice has announced their end.
type haste struct {
	attempt *attempt
	scope   ranks.Scope
	ranks   []ranks.Rank
	saved   *saves.Watch

	mu sync.Mutex
	// calm ends the close watch. It is nil before the watch has begun. over says that the ranks
	// have exited.
	calm func()
	over bool
}

// begin starts the close watch after a notice. Once the coordinator knows what the ranks are
// saving, begin also reports that the ranks catch the signal that stops them, if they do.
func (h *haste) begin(deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if h.calm == nil {
		h.calm = h.attempt.job.node.sampler.Hurry()
	}
	h.saved.Hurry(deadline, func() {
		if h.catching() {
			a := h.attempt
			a.report(job.Catching{Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt})
		}
	})
}

// end is called once the ranks have exited.
func (h *haste) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.calm != nil {
		h.calm()
	}
}

// catching reports whether each running rank catches its stop signal. It returns false for a job
// with a NoticeSignal, because that signal tells the ranks of their end.
func (h *haste) catching() bool {
	task := h.attempt.job.work.Task
	members, err := h.scope.Members()
	if err != nil || task.NoticeSignal != 0 {
		return false
	}
	sig := cmp.Or(task.StopSignal, syscall.SIGTERM)
	return !slices.ContainsFunc(h.ranks, func(r ranks.Rank) bool {
		return r.Running() && !proc.Catches(r.Process.Pid(), members, sig)
	})
}
