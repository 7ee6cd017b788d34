package logs

import (
	"slices"
	"sync"
	"sync/atomic"
)

// hub tells the followers of a directory which files were written. Without followers a write costs
// one atomic load. A follower joins before it looks at the files, and a file is written before the
// hub is told, so no write is missed.
type hub struct {
	followers atomic.Pointer[[]*follower] // nil when there is none; the list never changes
	over      atomic.Bool
	mu        sync.Mutex // held to change followers or over
}

func (h *hub) wrote(f File) {
	if all := h.followers.Load(); all != nil {
		for _, o := range *all {
			o.mark(f)
		}
	}
}

func (h *hub) join(o *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append(h.all(), o)
	h.followers.Store(&all)
}

func (h *hub) leave(o *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.DeleteFunc(h.all(), func(other *follower) bool { return other == o })
	if len(all) == 0 {
		h.followers.Store(nil)
		return
	}
	h.followers.Store(&all)
}

// end tells the followers that no file will be written any more.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over.Store(true)
	for _, o := range h.all() {
		o.rouse()
	}
}

func (h *hub) all() []*follower {
	if all := h.followers.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

// follower collects the files that were written since its reader last looked. It holds each file
// once, so it is bounded by their number, and a writer never waits for the reader.
type follower struct {
	filter Filter
	wake   chan struct{} // has room for one signal

	mu    sync.Mutex
	dirty []File // in order of the first write of each file
	known map[File]struct{}
}

func newFollower(filter Filter) *follower {
	return &follower{filter: filter, wake: make(chan struct{}, 1), known: map[File]struct{}{}}
}

func (o *follower) mark(f File) {
	if !o.filter.file(f) {
		return
	}
	o.mu.Lock()
	if _, known := o.known[f]; !known {
		o.known[f] = struct{}{}
		o.dirty = append(o.dirty, f)
	}
	o.mu.Unlock()
	o.rouse()
}

func (o *follower) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns the collected files and reuses room for the next ones.
func (o *follower) take(room []File) []File {
	o.mu.Lock()
	defer o.mu.Unlock()
	dirty := o.dirty
	o.dirty = room[:0]
	clear(o.known)
	return dirty
}
