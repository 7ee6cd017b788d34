package saves

import (
	"time"

	"github.com/golaunch/golaunch/agent/internal/checkpoint"
)

// flight is a checkpoint that is not proved.
type flight struct {
	dir, name string
	// began is when it was first seen, and changed when it last was open or different.
	began, changed time.Time
	// open says that a process has a file of it open for writing.
	open bool
	// missed says that no process was seen to write it. Told says that its beginning was reported,
	// unless it is distant: then other nodes prove it.
	missed, told, distant bool
	// last is the newest finding, and next when it is to be inspected again.
	last    checkpoint.Finding
	next    time.Time
	settled bool
}

// see notes whether a process has it open.
func (f *flight) see(open bool, now time.Time) {
	f.open = open
	if open {
		f.changed, f.settled = now, false
	}
}

// due reports whether it is to be inspected.
func (f *flight) due(now time.Time) bool { return !f.open && !now.Before(f.next) }

// hear notes a finding of an incomplete checkpoint. It returns for how long nothing has changed.
// What has not changed for a second is settled.
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
