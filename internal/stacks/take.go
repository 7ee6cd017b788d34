package stacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxProcesses bounds those of one Take.
	maxProcesses = 8192
	// readers bounds the processes that are read at a time on this node. One whose memory the kernel does not let go of (a page that a
	// file system does not bring) keeps its reader until it does.
	readers = 16
)

// turns are the readers that may be at work.
var turns = make(chan struct{}, readers)

// Options are of a [Take].
type Options struct {
	// Children adds the processes that the ones named have begun, such as those that load data.
	Children bool
}

// Take looks into processes, and returns what was learnt of each, in their order, those that they have begun behind them. It returns when
// ctx ends at the latest: what was not learnt until then says so. A process is not stopped.
func Take(ctx context.Context, processes []Process, o Options) []Sample {
	if o.Children {
		processes = withChildren(processes)
	}
	var mu sync.Mutex
	samples := make([]Sample, len(processes))
	for i, p := range processes {
		samples[i] = Sample{PID: p.PID, Rank: p.Rank, Role: p.Role, Missing: "no time was left to look into it"}
		if i >= maxProcesses {
			samples[i].Missing = fmt.Sprintf("no more than %d processes are looked into", maxProcesses)
		}
	}
	processes = processes[:min(len(processes), maxProcesses)]
	parents := make([]int, len(processes))
	done := make(chan struct{}, len(processes))
	begun := 0
	for i, p := range processes {
		if !turn(ctx) {
			break
		}
		begun++
		go func() {
			defer func() { <-turns; done <- struct{}{} }()
			look(ctx, p, func(s Sample, parent int) {
				mu.Lock()
				defer mu.Unlock()
				samples[i], parents[i] = s, parent
			})
		}()
	}
	for range begun {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	mu.Lock()
	defer mu.Unlock()
	samples = slices.Clone(samples)
	name(samples, parents)
	return samples
}

// turn waits for one, until ctx ends.
func turn(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case turns <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// withChildren adds those of processes that are not among them yet.
func withChildren(processes []Process) []Process {
	seen := make(map[int]bool, len(processes))
	for _, p := range processes {
		seen[p.PID] = true
	}
	var all []Process
	for _, p := range processes {
		family := []Process{p}
		for i := 0; i < len(family) && len(family) <= maxChildren; i++ {
			for _, pid := range children(family[i].PID) {
				if !seen[pid] && len(family) <= maxChildren {
					seen[pid] = true
					family = append(family, Process{PID: pid, Rank: p.Rank, Rights: p.Rights})
				}
			}
		}
		all = append(all, family...)
	}
	return all
}

// look tells what the kernel knows of a process, and then what its memory has: the kernel may keep who reads that waiting.
func look(ctx context.Context, p Process, tell func(s Sample, parent int)) {
	s := Sample{PID: p.PID, Rank: p.Rank, Role: p.Role}
	st, err := statusOf(p.PID)
	if err == nil {
		err = permit(p.PID, st, p.Rights)
	}
	if err != nil {
		s.Missing = err.Error()
		tell(s, 0)
		return
	}
	s.Name = st.name
	s.Threads = []Thread{task(p.PID, p.PID)}
	s.Missing = "its memory could not be read in time"
	tell(s, st.parent)
	threads, version, cut, err := python(p.PID)
	if s.Python = version; err != nil && !errors.Is(err, errNoPython) && !gone(err) && ctx.Err() == nil {
		threads, cut, err = spied(ctx, p, st, err)
	}
	if now, none := statusOf(p.PID); none != nil || now.started != st.started {
		tell(Sample{PID: p.PID, Rank: p.Rank, Role: p.Role, Missing: errGone.Error()}, 0)
		return
	}
	if s.Missing = ""; err == nil {
		s.Threads, s.Cut = threads, cut
	} else if !errors.Is(err, errNoPython) {
		s.Missing = missing(err)
	}
	tell(s, st.parent)
}

// python is the Python of a process.
func python(pid int) (threads []Thread, version string, cut bool, err error) {
	m := borrow(of(pid))
	defer m.release()
	in, version, err := find(pid, m)
	if err != nil {
		return nil, version, false, err
	}
	threads, cut, err = in.read(pid, m)
	return threads, version, cut, err
}

// missing says what an error keeps from being told, and what a person can do.
func missing(err error) string {
	switch {
	case gone(err):
		return errGone.Error()
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return "the kernel does not let golaunch read its memory (ptrace(2)); run the agent as root, or as the rank's user with " +
			"kernel.yama.ptrace_scope at most 1"
	case errors.Is(err, errNone):
		return errNone.Error()
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return "Python's frames cannot be read: " + clean(text) + "; install py-spy on this node to see them"
}
