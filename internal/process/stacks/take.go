package stacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// maxProcesses bounds the processes of one Take.
const maxProcesses = 8192

// Options are the options of [Take].
type Options struct {
	// Children adds the child processes of the given processes, such as data loaders.
	Children bool
}

// Take examines processes and returns a sample of each, in order, followed by the samples of their
// children. It returns when ctx ends at the latest; then samples name the missing parts. It does
// not stop any process.
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
	queue := make(chan int, len(processes))
	for i := range processes {
		queue <- i
	}
	close(queue)
	done := make(chan struct{}, readersOfUser)
	work := func() {
		for i := range queue {
			readOne(ctx, processes[i], func(s Sample, parent int) {
				mu.Lock()
				defer mu.Unlock()
				samples[i], parents[i] = s, parent
			})
		}
		done <- struct{}{}
	}
	for range readersOfUser {
		go work()
	}
	for range readersOfUser {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	mu.Lock()
	defer mu.Unlock()
	samples = slices.Clone(samples)
	setRoles(samples, parents)
	return samples
}

// withChildren adds the children that are not among the processes.
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

// readOne waits for a reader and examines a process.
func readOne(ctx context.Context, p Process, tell func(s Sample, parent int)) {
	why := func(err error) { tell(Sample{PID: p.PID, Rank: p.Rank, Role: p.Role, Missing: err.Error()}, 0) }
	if nodeReaders.await(ctx, p, why) {
		defer nodeReaders.giveBack(p)
		look(ctx, p, tell)
	}
}

// look reports the kernel's facts about a process before it reads the memory of the process,
// because the kernel may block that read.
func look(ctx context.Context, p Process, tell func(s Sample, parent int)) {
	s := Sample{PID: p.PID, Rank: p.Rank, Role: p.Role}
	st, err := statOf(p.PID)
	if err == nil {
		err = permit(p.PID, p.Rights)
	}
	if err != nil {
		s.Missing = err.Error()
		tell(s, 0)
		return
	}
	s.Name = clean(st.Comm)
	s.Threads = []Thread{task(p.PID, p.PID)}
	s.Missing = errLate.Error()
	tell(s, st.PPID)
	threads, version, cut, err := python(ctx, p)
	if s.Python = version; err != nil && !errors.Is(err, errNoPython) && !gone(err) && ctx.Err() == nil {
		threads, cut, err = spied(ctx, p, err)
	}
	if err := same(p, st); err != nil { // it is another process: report nothing
		tell(Sample{PID: p.PID, Rank: p.Rank, Role: p.Role, Missing: err.Error()}, 0)
		return
	}
	if s.Missing = ""; err == nil {
		s.Threads, s.Cut = threads, cut
	} else if !errors.Is(err, errNoPython) {
		s.Missing = missing(err, p.Rights)
	}
	tell(s, st.PPID)
}

// same refuses a process if another process has its number now or if it is no longer permitted.
func same(p Process, st procfs.Stat) error {
	if now, err := statOf(p.PID); err != nil || now.Start != st.Start {
		return errGone
	}
	return permit(p.PID, p.Rights)
}

// python reads the Python stacks of a process.
func python(ctx context.Context, p Process) (threads []Thread, version string, cut bool, err error) {
	memory, err := open(p.PID)
	if err != nil {
		return nil, "", false, err
	}
	defer memory.close()
	if err := permit(p.PID, p.Rights); err != nil { // the program may have changed
		return nil, "", false, err
	}
	m := borrow(ctx, memory.page)
	defer m.release()
	in, version, err := find(p.PID, m)
	if err != nil {
		return nil, version, false, err
	}
	threads, cut, err = in.read(p.PID, m)
	return threads, version, cut, err
}

// missing explains what an error prevents, and what a person can do.
func missing(err error, r *safefile.Rights) string {
	switch {
	case gone(err):
		return errGone.Error()
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return errLate.Error()
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return "the kernel does not let golaunch read its memory (ptrace(2)); run the agent as root, or as the rank's user with " +
			"kernel.yama.ptrace_scope at most 1"
	case errors.Is(err, errReplaced):
		return errReplaced.Error()
	case errors.Is(err, errNone):
		return errNone.Error()
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = "Python's frames cannot be read: " + clean(text)
	if r != nil {
		return text + "; py-spy is not run for ranks of other users than the agent's"
	}
	return text + "; install py-spy on this node, in the PATH of the agent, to see them"
}
