package proc

import (
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

// pidTable has the processes that were started and not yet reaped.
type pidTable struct {
	// forks is held for reading during a fork until the new process is in pids. Forks by a Forker
	// do not hold it; asked counts them.
	forks sync.RWMutex
	mu    sync.Mutex
	pids  map[int]bool
	asked int
}

// start starts a process and adds it.
func (t *pidTable) start(start func() (pid int, err error)) (int, error) {
	t.forks.RLock()
	defer t.forks.RUnlock()
	pid, err := start()
	if err == nil {
		t.claim(pid)
	}
	return pid, err
}

// claim adds a process, and reports whether it was new.
func (t *pidTable) claim(pid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.pids[pid]
	t.pids[pid] = true
	return !known
}

// reap reaps a child that has exited. The table forgets the child first, while the number still
// belongs to it.
func (t *pidTable) reap(pid int) {
	t.mu.Lock()
	delete(t.pids, pid)
	t.mu.Unlock()
	for {
		// Any error except EINTR says that another part of the program has reaped the child.
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// asking counts the calls of Forkers that have not returned.
func (t *pidTable) asking(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked += n
}

// knows reports whether this supervisor has started a process that the caller has found in /proc.
// The fork of such a process has begun, so knows waits until no fork is in flight: then the process
// is in the table. It does not wait for a Forker, which may take long. While a Forker is at work,
// it takes all processes in the sessions of processes in the table for its own.
func (t *pidTable) knows(st procfs.Stat) bool {
	t.forks.Lock()
	defer t.forks.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pids[st.PID] || t.asked > 0 && t.pids[st.Session]
}

func (t *pidTable) all() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.pids))
}
