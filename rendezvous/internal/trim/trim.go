// Package trim returns unused memory to the system.
package trim

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Trimmer returns memory to the system when a coordinator has had nothing to do for a while.
// Without it, Go would keep a heap of twice the size of the live objects, and gRPC would keep
// buffers for everything that thousands of agents have sent at once.
type Trimmer struct {
	quiet *time.Timer
	// next is the earliest time of the next trim, in nanoseconds since 1970.
	next atomic.Int64
}

const (
	// quietAfter is how long the coordinator must have had nothing to do. manyAgents is the number
	// of agents with which the heap, some 10 MB, is worth two garbage collections.
	quietAfter = 2 * time.Second
	manyAgents = 128
	// A trim is made only if more than one part in worthwhile of the heap is unused.
	worthwhile = 16
	// trimShare bounds the processor time of trims if something happens every few seconds. Trims
	// then take at most one part in trimShare of a core.
	trimShare = 50
)

// Happened notes that a coordinator with some number of agents is busy.
func (t *Trimmer) Happened(agents int) {
	wait := max(quietAfter, time.Until(time.Unix(0, t.next.Load())))
	switch {
	case agents < manyAgents:
	case t.quiet == nil:
		t.quiet = time.AfterFunc(wait, t.trim)
	default:
		t.quiet.Reset(wait)
	}
}

// Stop ends the wait for a quiet time.
func (t *Trimmer) Stop() {
	if t.quiet != nil {
		t.quiet.Stop()
	}
}

func (t *Trimmer) trim() {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	objects, unused, free, live := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()
	garbage := objects - min(objects, live) // an upper bound: new objects may be live
	if unused+free+garbage > (objects+unused+free)/worthwhile {
		before := collecting()
		runtime.GC() // a sync.Pool drops its objects in the second collection
		debug.FreeOSMemory()
		t.next.Store(time.Now().Add(trimShare * (collecting() - before)).UnixNano())
	}
}

// collecting returns the processor time that garbage collection and the return of memory have
// taken.
func collecting() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/scavenge/total:cpu-seconds"}}
	metrics.Read(s)
	return time.Duration((s[0].Value.Float64() + s[1].Value.Float64()) * float64(time.Second))
}
