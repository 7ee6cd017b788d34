package proc

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// reapDelay gathers the exits of orphans: a zombie does no harm for a second, and a look at /proc costs milliseconds.
const reapDelay = time.Second

// adopt makes this process the parent of the orphans of its ranks, and reaps them.
func (s *Supervisor) adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	s.reaper.Go(func() {
		defer signal.Stop(children)
		for {
			select {
			case <-children:
			case <-s.reaped:
				return
			}
			select {
			case <-time.After(reapDelay):
				s.reapOrphans()
			case <-s.reaped:
				return
			}
		}
	})
	return nil
}

// disown ends what adopt began. What was adopted is dead by now; the last zombies go to who adopts them when this process ends.
func (s *Supervisor) disown() error {
	close(s.reaped)
	s.reaper.Wait()
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
}

// orphan reports whether a process is one that this process adopted. Ranks and the guardian are in sessions of their own too, but
// known; other children of this program share its session.
func (s *Supervisor) orphan(st stat) bool {
	return st.ppid == os.Getpid() && st.session != s.session && !s.knows(st)
}

func (s *Supervisor) reapOrphans() {
	if err := bury(s.unmarked(s.orphan)); err != nil {
		s.opts.Warn(err)
	}
}

// bury reaps the zombies among some.
func bury(of *unmarked) error {
	pids, err := processes(of.since, of.known)
	if err != nil {
		return fmt.Errorf("look for processes to reap: %w", err)
	}
	for _, pid := range pids {
		if st, ok := readStat(pid); ok && st.state == 'Z' && of.match(st) {
			// Only the wait of an earlier look can have come first.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}
