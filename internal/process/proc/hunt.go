package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errSurvivors says that SIGKILL did not end a process.
var errSurvivors = fmt.Errorf("processes outlive SIGKILL by %v: a driver or file system holds them (see /proc/PID/stack)",
	killLimit)

// trail is what the processes of a scope are found by.
type trail struct {
	// marker is a variable in the environment of each, unless it cleared that.
	marker string
	// cgroup is their directory, or empty.
	cgroup string
	// sessions are those of the processes that were started; each is also the number of a process group.
	sessions []int
	// since is before all of them.
	since Epoch
}

// owns reports whether a process belongs to the scope.
func (t trail) owns(st stat) bool {
	return slices.Contains(t.sessions, st.session) || t.marker != "" && !t.since.older(st) && bytes.Contains(environ(st.pid), []byte(t.marker))
}

// grouped returns what still runs in the process groups that were started.
func (t trail) grouped() []handle {
	pids, err := t.candidates()
	if err != nil {
		return nil
	}
	return find(pids, func(st stat) bool { return slices.Contains(t.sessions, st.group) })
}

// candidates are the processes that may belong to the scope.
func (t trail) candidates() ([]int, error) {
	if t.cgroup == "" {
		return processes(t.since, t.sessions)
	}
	pids, err := readNumbers(filepath.Join(t.cgroup, "cgroup.procs"))
	return pids, gone(err)
}

// find opens a handle on each of the processes that live and match.
func find(pids []int, match func(stat) bool) []handle {
	var found []handle
	for _, pid := range pids {
		if !alive(pid, match) {
			continue
		}
		h := openHandle(pid)
		if !alive(pid, match) {
			h.close()
			continue
		}
		found = append(found, h)
	}
	return found
}

func alive(pid int, match func(stat) bool) bool {
	st, ok := readStat(pid)
	return ok && !st.dead() && match(st)
}

// kill sends SIGKILL to the groups that were started and to all that is in the cgroup.
func (t trail) kill() error {
	for _, session := range t.sessions {
		// A group without processes is as good as killed.
		_ = unix.Kill(-session, unix.SIGKILL)
	}
	if t.cgroup == "" {
		return nil
	}
	return killGroup(t.cgroup)
}

// unmarked are processes that no trail leads to. They are younger than since, as the known ones are.
type unmarked struct {
	match func(stat) bool
	since Epoch
	known []int
}

// hunt kills all processes of the trails, and unmarked ones (which may be nil), and returns when none is left.
func hunt(trails []trail, also *unmarked, deadline time.Time) error {
	var errs []error
	var loose []trail
	for _, t := range trails {
		errs = append(errs, t.kill())
		if t.cgroup == "" {
			loose = append(loose, t)
		}
	}
	for _, t := range trails {
		if t.cgroup != "" {
			errs = append(errs, awaitEmpty(t.cgroup, deadline))
		}
	}
	if len(loose) > 0 || also != nil {
		errs = append(errs, sweep(loose, also, deadline))
	}
	return errors.Join(errs...)
}

// sweep kills what it finds in /proc until it finds nothing: a process may fork while it is being looked for.
func sweep(trails []trail, also *unmarked, deadline time.Time) error {
	match := func(st stat) bool {
		return slices.ContainsFunc(trails, func(t trail) bool { return t.owns(st) }) || also != nil && also.match(st)
	}
	var epochs []Epoch
	var known []int
	for _, t := range trails {
		epochs, known = append(epochs, t.since), append(known, t.sessions...)
	}
	if also != nil {
		epochs, known = append(epochs, also.since), append(known, also.known...)
	}
	since := slices.MinFunc(epochs, func(a, b Epoch) int { return cmp.Compare(a.At, b.At) })
	for {
		pids, err := processes(since, known)
		if err != nil {
			return fmt.Errorf("look for processes to kill: %w", err)
		}
		found := find(pids, match)
		if len(found) == 0 {
			return nil
		}
		for _, h := range found {
			h.kill()
		}
		if !awaitAll(found, deadline, nil) {
			return survivors(found)
		}
	}
}

// survivors names those that still live.
func survivors(handles []handle) error {
	err := errSurvivors
	for _, h := range handles {
		if st, ok := readStat(h.pid); ok && !st.dead() {
			err = fmt.Errorf("%w; pid %v", err, st)
		}
	}
	return err
}
