// Package sweep finds and kills the processes of a scope.
package sweep

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Trail has the facts that identify the processes of a scope.
type Trail struct {
	// Marker is a variable in the environment of each process, unless the process has cleared its
	// environment.
	Marker string
	// Cgroup is the directory of their cgroup, or empty.
	Cgroup string
	// Sessions are the sessions of the processes that were started. Each session is also a process
	// group.
	Sessions []int
	// Since is an epoch before the start of all of them.
	Since procfs.Epoch
}

// Owns reports whether a process belongs to the scope.
func (t Trail) Owns(st procfs.Stat) bool {
	return slices.Contains(t.Sessions, st.Session) ||
		t.Marker != "" && !t.Since.Older(st) && bytes.Contains(procfs.Environ(st.PID), []byte(t.Marker))
}

// Candidates returns the processes that may belong to the scope.
func (t Trail) Candidates() ([]int, error) {
	if t.Cgroup == "" {
		return procfs.Processes(t.Since, t.Sessions)
	}
	pids, err := procfs.ReadNumbers(path.Join(t.Cgroup, "cgroup.procs"))
	return pids, cgroup.Gone(err)
}

// Grouped returns the processes that still run in the process groups that were started.
func (t Trail) Grouped() []procfs.Handle {
	pids, err := t.Candidates()
	if err != nil {
		return nil
	}
	return procfs.Find(pids, func(st procfs.Stat) bool { return slices.Contains(t.Sessions, st.Group) })
}

// Running returns all processes that still run, in any session.
func (t Trail) Running() ([]procfs.Handle, error) {
	pids, err := t.Candidates()
	if err != nil {
		return nil, err
	}
	return procfs.Find(pids, func(st procfs.Stat) bool { return t.Cgroup != "" || t.Owns(st) }), nil
}

// Kill sends SIGKILL to the process groups that were started and to all processes in the cgroup.
func (t Trail) Kill() error {
	for _, session := range t.Sessions {
		// A group without processes is as good as killed.
		_ = unix.Kill(-session, unix.SIGKILL)
	}
	if t.Cgroup == "" {
		return nil
	}
	return cgroup.Kill(t.Cgroup)
}

// Unmarked are processes that no trail leads to, but that match. They and the processes in Known
// are younger than Since.
type Unmarked struct {
	Match func(procfs.Stat) bool
	Since procfs.Epoch
	Known []int
}

// KillAll kills all processes of the trails, and the unmarked processes unless unmarked is nil. It
// returns when no process is left.
func KillAll(trails []Trail, also *Unmarked, deadline time.Time) error {
	var errs []error
	var loose []Trail
	for _, t := range trails {
		errs = append(errs, t.Kill())
		if t.Cgroup == "" {
			loose = append(loose, t)
		}
	}
	for _, t := range trails {
		if t.Cgroup != "" {
			errs = append(errs, cgroup.AwaitEmpty(t.Cgroup, deadline))
		}
	}
	if len(loose) > 0 || also != nil {
		errs = append(errs, Sweep(loose, also, deadline))
	}
	return errors.Join(errs...)
}

// Sweep kills the processes that it finds in /proc until it finds none: a process may fork during
// the search.
func Sweep(trails []Trail, also *Unmarked, deadline time.Time) error {
	match := func(st procfs.Stat) bool {
		return slices.ContainsFunc(trails, func(t Trail) bool { return t.Owns(st) }) || also != nil && also.Match(st)
	}
	var epochs []procfs.Epoch
	var known []int
	for _, t := range trails {
		epochs, known = append(epochs, t.Since), append(known, t.Sessions...)
	}
	if also != nil {
		epochs, known = append(epochs, also.Since), append(known, also.Known...)
	}
	since := slices.MinFunc(epochs, func(a, b procfs.Epoch) int { return cmp.Compare(a.At, b.At) })
	for {
		pids, err := procfs.Processes(since, known)
		if err != nil {
			return fmt.Errorf("look for processes to kill: %w", err)
		}
		found := procfs.Find(pids, match)
		if len(found) == 0 {
			return nil
		}
		for _, h := range found {
			h.Kill()
		}
		if !procfs.AwaitAll(found, deadline, nil) {
			return procfs.Survivors(found)
		}
	}
}

// Reap reaps the zombies among unmarked processes.
func Reap(of *Unmarked) error {
	pids, err := procfs.Processes(of.Since, of.Known)
	if err != nil {
		return fmt.Errorf("look for processes to reap: %w", err)
	}
	for _, pid := range pids {
		if st, ok := procfs.ReadStat(pid); ok && st.State == 'Z' && of.Match(st) {
			// Nothing except an earlier call can have reaped the process meanwhile.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}
