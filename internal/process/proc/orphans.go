package proc

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// reapDelay is how long the reaper waits for more exits before it looks for orphans: a zombie does
// no harm for a second, and a look at /proc takes milliseconds.
const reapDelay = time.Second

// orphanReaper reaps the orphans that a subreaper has adopted.
type orphanReaper struct {
	// session is the session of this process: its other children are in that session.
	session int
	stop    chan struct{}
	running sync.WaitGroup
}

// adoptOrphans makes this process the parent of its ranks' orphans.
func (s *Supervisor) adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	s.orphans.running.Go(func() {
		defer signal.Stop(children)
		for {
			select {
			case <-children:
			case <-s.orphans.stop:
				return
			}
			select {
			case <-time.After(reapDelay):
				s.reapOrphans()
			case <-s.orphans.stop:
				return
			}
		}
	})
	return nil
}

func (s *Supervisor) reapOrphans() {
	if err := sweep.Reap(s.unmarked(s.isOrphan)); err != nil {
		s.opts.Warn(err)
	}
}

// disownOrphans undoes adoptOrphans. The orphans are dead by now, and the process that adopts the
// last zombies reaps them.
func (s *Supervisor) disownOrphans() error {
	close(s.orphans.stop)
	s.orphans.running.Wait()
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
}

// isOrphan reports whether this process has adopted a process. Ranks and the guardian are in the
// table, and this program's other children are in its session.
func (s *Supervisor) isOrphan(st procfs.Stat) bool {
	return st.PPID == os.Getpid() && st.Session != s.orphans.session && !s.table.knows(st)
}

// unmarked are processes that started after this supervisor.
func (s *Supervisor) unmarked(match func(procfs.Stat) bool) *sweep.Unmarked {
	return &sweep.Unmarked{Match: match, Since: s.since, Known: s.table.all()}
}

// orphansOf returns the orphans without a mark that end with a scope. It returns nil with cgroups,
// where there are none, and while other scopes live: such an orphan may belong to any scope, so it
// ends with the last one. Scopes of fork servers live on, and keep the orphans with their marks.
func (s *Supervisor) orphansOf(ending *Scope) *sweep.Unmarked {
	if s.home != nil || !s.opts.Subreaper {
		return nil
	}
	servers, others := s.others(ending)
	if others {
		return nil
	}
	return s.unmarked(func(st procfs.Stat) bool {
		return s.isOrphan(st) && !slices.ContainsFunc(servers, func(sc *Scope) bool { return sc.trail().Owns(st) })
	})
}

// others returns the living scopes of fork servers except the scope that ends, and whether other
// scopes live.
func (s *Supervisor) others(ending *Scope) (servers []*Scope, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sc, lives := range s.scopes {
		switch {
		case !lives || sc == ending:
		case sc.forks.serves.Load():
			servers = append(servers, sc)
		default:
			s.unswept = true
			return nil, true
		}
	}
	return servers, false
}

func (s *Supervisor) needsSweep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unswept
}
