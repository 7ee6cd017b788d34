package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// waiter is a process of the scope that a Forker made, and that waits to become the process of a
// command.
type waiter struct {
	*Process
	forker Forker
	fork   Fork
}

// Ahead asks a Forker for a process that waits in the scope. A later Start with that Forker then
// needs no fork. The waiting process ends with [Scope.Dismiss], when the scope is stopped or
// killed, or when the calling process dies.
func (sc *Scope) Ahead(f Forker, as *safefile.Rights) error {
	if err := sc.sup.guard.Ready(); err != nil {
		return err
	}
	sc.forks.asking.RLock()
	defer sc.forks.asking.RUnlock()
	if err := sc.refuses(); err != nil {
		return err
	}
	w, err := sc.await(f, as)
	if err != nil {
		return err
	}
	sc.mu.Lock()
	sc.forks.waiting = append(sc.forks.waiting, w)
	sc.mu.Unlock()
	return sc.keepsLease()
}

// Dismiss ends the processes that wait in the scope.
func (sc *Scope) Dismiss() {
	sc.mu.Lock()
	waiting := sc.forks.waiting
	sc.forks.waiting = nil
	sc.mu.Unlock()
	for _, w := range waiting {
		w.discard()
	}
}

// waits returns a process that a Forker made and that waits in the scope, or nil.
func (sc *Scope) waits(f Forker) *waiter {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	i := slices.IndexFunc(sc.forks.waiting, func(w *waiter) bool { return w.forker == f })
	if i < 0 {
		return nil
	}
	w := sc.forks.waiting[i]
	sc.forks.waiting = slices.Delete(sc.forks.waiting, i, i+1)
	return w
}

// await asks a Forker for a process.
func (sc *Scope) await(f Forker, as *safefile.Rights) (*waiter, error) {
	sc.sup.table.asking(1)
	defer sc.sup.table.asking(-1)
	var p *Process
	fork, err := f.Fork(Birth{
		Cgroup: sc.group.fd, Rights: as,
		Born: func(pid int) (err error) {
			p, err = sc.admit(pid, as)
			return err
		},
		Apart: func() error { return p.separate(as) },
	})
	if err != nil {
		if p != nil {
			p.discard()
		}
		return nil, err
	}
	return &waiter{p, f, fork}, nil
}

// forkByServer makes the process of a command from a process of the command's Forker that waits in
// the scope, or else asks the Forker for one. Meanwhile, only signals and stops of this scope wait.
func (sc *Scope) forkByServer(c *Command, files []uintptr) (*Process, error) {
	sc.forks.asking.RLock()
	defer sc.forks.asking.RUnlock()
	if err := sc.refuses(); err != nil {
		return nil, err
	}
	for {
		w := sc.waits(c.Forker)
		ahead := w != nil
		if !ahead {
			var err error
			if w, err = sc.await(c.Forker, c.Rights); err != nil {
				return nil, err
			}
		}
		run, err := w.fork.Become(c, append([]string{sc.marker}, c.Env...), files)
		runtime.KeepAlive(c)
		if err == nil {
			w.forked = true
			go w.wait(sc.explain)
			run()
			return w.Process, nil
		}
		w.discard()
		if !ahead { // a process that has waited for hours may have died
			return nil, err
		}
	}
}

func (w *waiter) discard() {
	_ = w.fork.Close() // closes a socket
	w.Process.discard()
}

// discard kills a process that cannot be used. The scope reaps the process.
func (p *Process) discard() {
	p.handle.Kill()
	go p.wait(func(*Process) {})
}

// admit adds a process that a Forker calls a fork of its server, if the process can be such a fork.
// A server may be another user's process and claim anything, while this process, which may be
// root's, signals, moves and kills the processes that it admits.
//
// A child of this process keeps its number until it is reaped. Orphans are reaped at any time, but
// processes in the table do not count as orphans, nor do forks of servers while a Forker is at
// work, see [pidTable.knows]. So the facts found out about a number stay true while the process is
// in the scope.
func (sc *Scope) admit(pid int, as *safefile.Rights) (*Process, error) {
	h := procfs.Open(pid)
	err := sc.sup.checkFork(h, as)
	if err == nil && !sc.sup.table.claim(pid) {
		err = errors.New("golaunch knows it as another one")
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("process %d is no fork of it: %w", pid, err)
	}
	p := &Process{pid: pid, handle: h, done: make(chan struct{})}
	sc.enlist(p)
	return p, nil
}

// checkFork returns an error if a process cannot be a fork of a server. Such a fork is a child of
// this process, is in the session of a process that has [Command.Serves], and runs with the given
// rights.
func (s *Supervisor) checkFork(h procfs.Handle, as *safefile.Rights) error {
	st, err := checkChild(h, as)
	if err == nil && !s.serving(st.Session) {
		err = fmt.Errorf("its session, %d, is not that of a fork server", st.Session)
	}
	return err
}

// separate returns an error if an admitted process has not moved to a session of its own.
func (p *Process) separate(as *safefile.Rights) error {
	st, err := checkChild(p.handle, as)
	if err == nil && st.Session != p.pid {
		err = fmt.Errorf("it is still in session %d", st.Session)
	}
	if err != nil {
		return fmt.Errorf("process %d is no rank: %w", p.pid, err)
	}
	return nil
}

// checkChild returns an error if a process is not a child of this one with the given rights. It
// needs a pidfd, which does not exist for a thread, or for a number that names no process or
// several.
func checkChild(h procfs.Handle, as *safefile.Rights) (procfs.Stat, error) {
	if !h.Pinned() {
		return procfs.Stat{}, errors.New("there is no such process")
	}
	st, ok := procfs.ReadStat(h.PID)
	switch {
	case !ok:
		return procfs.Stat{}, errors.New("it is gone")
	case st.PPID != os.Getpid():
		return procfs.Stat{}, fmt.Errorf("it is a child of process %d", st.PPID)
	case as != nil && !slices.Equal(owners(h.PID), slices.Repeat([]int{int(as.UID)}, 4)):
		return procfs.Stat{}, fmt.Errorf("it does not run as uid %d alone", as.UID)
	}
	// If the process still exists now, st is about this process: its number had no other owner.
	return st, h.Exists()
}

// owners returns the real, effective, saved and file system uids of a process (proc_pid_status(5)).
func owners(pid int) []int { return procfs.Numbers(strings.Fields(procfs.Status(pid, "Uid"))) }

// serving reports whether a session belongs to a fork server.
func (s *Supervisor) serving(session int) bool {
	s.mu.Lock()
	var servers []*Scope
	for sc := range s.scopes {
		if sc.forks.serves.Load() {
			servers = append(servers, sc)
		}
	}
	s.mu.Unlock()
	return slices.ContainsFunc(servers, func(sc *Scope) bool { return slices.Contains(sc.trail().Sessions, session) })
}

// collect ends and reaps forks of the scope's servers that no Forker has admitted: these forks are
// still in the servers' sessions. With Options.Subreaper there is nothing to do, because the orphan
// reaper reaps them.
func (sc *Scope) collect(deadline time.Time) error {
	if !sc.forks.serves.Load() || sc.sup.opts.Subreaper {
		return nil
	}
	sessions := sc.trail().Sessions
	lost := sc.sup.unmarked(func(st procfs.Stat) bool {
		return st.PPID == os.Getpid() && slices.Contains(sessions, st.Session) && !sc.sup.table.knows(st)
	})
	if err := sweep.Sweep(nil, lost, deadline); err != nil {
		return err
	}
	return sweep.Reap(lost)
}
