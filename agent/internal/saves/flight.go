package saves

import (
	"time"

	"github.com/golaunch/golaunch/agent/internal/checkpoint"
)

// flight is a checkpoint that is not yet proved to be complete.
type flight struct {
	dir, name string
	// began is when the checkpoint was first seen. changed is when it was last open or different.
	began, changed time.Time
	// open says that a process has a file of the checkpoint open for writing.
	open bool
	// missed says that no process was seen to write the checkpoint. told says that its beginning
	// was reported. distant says that other nodes prove it; then this node reports nothing.
	missed, told, distant bool
	// last is the newest finding. next is when to inspect the checkpoint again.
	last    checkpoint.Finding
	next    time.Time
	settled bool
}

// see notes whether a process has the checkpoint open.
func (f *flight) see(open bool, now time.Time) {
	f.open = open
	if open {
		f.changed, f.settled = now, false
	}
}

// due reports whether to inspect the checkpoint.
func (f *flight) due(now time.Time) bool { return !f.open && !now.Before(f.next) }

// hear notes a finding of an incomplete checkpoint. It returns for how long nothing has changed. A
// checkpoint without changes for a second is settled.
func (f *flight) hear(found checkpoint.Finding, now time.Time) time.Duration {
	same := found.Bytes == f.last.Bytes && found.Newest.Equal(f.last.Newest)
	if !same {
		f.changed = now
	}
	f.settled = same && !f.open
	still := now.Sub(f.changed)
	f.next = now.Add(max(openEvery, min(still, restEvery)))
	f.last = found
	return still
}
