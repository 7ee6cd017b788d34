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

// haste watches closely what the ranks of an attempt save, from the first notice of their end.
type haste struct {
	attempt *attempt
	scope   ranks.Scope
	ranks   []ranks.Rank
	saved   *saves.Watch

	mu sync.Mutex
	// calm ends it; nil before it has begun. Over says that the ranks have exited.
	calm func()
	over bool
}

// begin is for a notice. When the coordinator knows what the ranks are saving, it is told whether
// they catch the signal that stops them.
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

// catching reports whether each running rank catches its stop signal. A job with a signal for
// notices has another way to hear of its end.
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
