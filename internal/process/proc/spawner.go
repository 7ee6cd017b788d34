package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// thread is an operating system thread that forks ranks. A rank gets the signal of PR_SET_PDEATHSIG
// when the thread that forked it ends. So these threads end only with the supervisor, when no rank
// is left.
type thread struct {
	// all is the thread's set of CPUs before it bound a rank; err is the reason if the set is
	// unknown.
	all   unix.CPUSet
	err   error
	bound bool
	// policy is the thread's first memory policy; nil until the thread gives a rank another policy.
	policy *memoryPolicy
}

func spawn(work <-chan func(*thread)) {
	// The thread stays locked to this goroutine, since another goroutine could end it.
	runtime.LockOSThread()
	var t thread
	t.err = unix.SchedGetaffinity(0, &t.all)
	for f := range work {
		f(&t)
	}
}

// forkExec starts c with the program at path. From its first instant the child has the death signal,
// a new session and the cgroup.
func (sc *Scope) forkExec(path string, c *Command, files []uintptr) (pid int, fail *StartError) {
	cgroup := sc.group.fd
	attr := &syscall.ProcAttr{
		Dir:   c.Dir,
		Env:   append([]string{sc.marker}, c.Env...),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, UseCgroupFD: cgroup >= 0, CgroupFD: max(cgroup, 0)},
	}
	var err error
	if attr.Sys.Credential, err = c.Rights.Credential(); err != nil {
		return 0, c.failure(codeOwn, "%v", err)
	}
	done := make(chan struct{})
	sc.sup.spawner <- func(t *thread) {
		defer close(done)
		if err := errors.Join(t.bind(c.CPUs), t.prefer(c.Memory)); err != nil {
			fail = c.failure(codeOwn, "%v", err)
			return
		}
		// Go forks with CLONE_VFORK|CLONE_VM, which costs the same for a small and a large process.
		if pid, err = syscall.ForkExec(path, c.Args, attr); err != nil {
			fail = c.as(func() *StartError { return diagnose(c, path, err) })
		}
	}
	<-done
	runtime.KeepAlive(c)
	return pid, fail
}

// bind gives the thread the CPUs that its next child inherits: all allowed CPUs if cpus is empty.
func (t *thread) bind(cpus []int) error {
	if len(cpus) == 0 && !t.bound {
		return nil
	}
	if t.err != nil {
		return fmt.Errorf("get the CPUs of this process: %w", t.err)
	}
	set := t.all
	if len(cpus) > 0 {
		set.Zero()
		for _, cpu := range cpus {
			set.Set(cpu)
		}
		if set.Count() == 0 {
			return fmt.Errorf("bind to CPUs %v: no such CPU", cpus)
		}
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPUs %v: %w (see the Cpus_allowed_list in /proc/self/status)", cpus, err)
	}
	t.bound = len(cpus) > 0
	return nil
}

// descriptors returns the files that become the descriptors 0, 1 and 2 of a process.
func descriptors(null *os.File, files ...*os.File) ([]uintptr, error) {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		if f == nil {
			f = null
		}
		if fds[i] = f.Fd(); fds[i] == ^uintptr(0) {
			return nil, errors.New([]string{"stdin", "stdout", "stderr"}[i] + " is a closed file")
		}
	}
	return fds, nil
}
