// Package proc supervises the processes of ranks.
//
// A [Supervisor] has one [Scope] for each attempt of a unit. A scope has the [Process]es that end
// together, with all their descendants. Descendants are held together by:
//
//   - a cgroup v2 of the scope, where one can be made: cgroup.kill reaches everything that was forked
//     (Linux 5.14 and later);
//   - else each rank's session, a marker in the environment of its descendants, and orphans that the
//     supervisor adopts as their subreaper. A process can then escape if it has left its session,
//     cleared its environment and lost its parent. A supervisor that lives and is a subreaper ends
//     even such a process.
//
// If the supervisor's process dies, even by SIGKILL, PR_SET_PDEATHSIG kills the ranks, and the
// guardian, a small helper process ("rankguard"), kills all scopes. If both die at once, the user's
// next supervisor on the machine kills the scopes before it starts anything. The guardian also
// keeps a lease, see [Supervisor.Renew], and proves the death of all ranks to peers, see
// [Supervisor.Hold].
//
// A rank that has exited stays a zombie until its scope ends: its number also names its session and
// its process group, and must not be reused.
package proc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/guard"
	"github.com/golaunch/golaunch/internal/process/proc/internal/guardian"
	"github.com/golaunch/golaunch/internal/process/proc/internal/record"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Holds reports whether cgroups hold the descendants of ranks together here. Without cgroups, if a
// process leaves its session and clears its environment, it is found as an orphan while this
// process lives, but not after a kill -9 of this process.
func Holds() bool { return cgroup.Usable() }

// Options are a supervisor's choices.
type Options struct {
	// Subreaper says that all children of the calling process are the supervisor's. The supervisor
	// then adopts the orphans of its ranks (PR_SET_CHILD_SUBREAPER), and reaps every child in
	// another session than its own. Leave it false in a program that starts other processes with
	// Setsid.
	Subreaper bool
	// Warn is called, on any goroutine, when something went wrong that fails no call, such as the
	// death of the guardian. Nil discards.
	Warn func(error)

	// noCgroup makes the supervisor behave as on a machine where no cgroup is writable.
	noCgroup bool
}

// Supervisor starts processes and ends them. Several goroutines may use it.
type Supervisor struct {
	opts Options
	// since is an epoch before the start of all processes.
	since procfs.Epoch
	// marker begins the variable that marks each process.
	marker string
	// home has a cgroup for each scope; nil if none can be made.
	home    *cgroup.Home
	record  *record.File
	null    *os.File
	spawner chan func(*thread)
	guard   *guard.Guard
	table   pidTable
	orphans orphanReaper

	mu     sync.Mutex
	made   int
	closed bool
	// scopes are the scopes that are not closed; true for a scope that has not ended.
	scopes map[*Scope]bool
	// unswept says that a scope ended while others lived, so unmarked orphans of that scope may be
	// left.
	unswept bool
}

// New returns a supervisor without scopes. Its guardian starts in the background. New first ends
// the processes that earlier supervisors of this user have left on this machine, if these
// supervisors were killed together with their guardians. It fails if such a process outlives
// SIGKILL, or if the kernel refuses a call that supervision needs.
func New(opts Options) (*Supervisor, error) {
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("get the session of this process: %w", err)
	}
	if err := record.EndStale(time.Now().Add(record.StaleLimit)); err != nil {
		return nil, fmt.Errorf("end what an earlier golaunch has left on this node: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the input of ranks that have none: %w", err)
	}
	s := &Supervisor{
		opts: opts, since: procfs.NewEpoch(), marker: "RANKGUARD_" + rand.Text() + "_", null: null,
		spawner: make(chan func(*thread)), table: pidTable{pids: map[int]bool{}}, scopes: map[*Scope]bool{},
		orphans: orphanReaper{session: session, stop: make(chan struct{})},
	}
	guarded := guard.Options{Since: s.since, Start: s.table.start, Reap: s.table.reap, Warn: opts.Warn}
	if opts.Subreaper {
		if err := s.adoptOrphans(); err != nil {
			return nil, errors.Join(err, null.Close())
		}
		guarded.Subreaper, guarded.Session = true, session
	}
	if !opts.noCgroup {
		s.home = cgroup.MakeHome()
	}
	if s.home != nil {
		guarded.Cgroup = s.home.Dir
	}
	if s.record = record.New(record.Record{Marker: s.marker, Since: s.since, Cgroup: guarded.Cgroup}); s.record != nil {
		guarded.Record = s.record.Path
	}
	s.guard = guard.New(guarded)
	for range min(runtime.GOMAXPROCS(0), 4) {
		go spawn(s.spawner)
	}
	return s, nil
}

// Renew gives all ranks a lease from now on: the guardian kills every scope if Renew is not called
// again in time. 0 ends the lease. The time counts while the machine sleeps or is paused
// (CLOCK_BOOTTIME), and while this process is stopped.
func (s *Supervisor) Renew(lease time.Duration) {
	if lease <= 0 {
		s.guard.Renew(0)
		return
	}
	s.guard.Renew(procfs.BootTime() + lease)
}

// Hold gives the guardian duplicates of at most 128 sockets, which replace the duplicates of the
// last call. Once no rank lives, and this process has died or closed the supervisor, the guardian
// sends the proof of that on each socket and closes it. Until then this process may use the sockets
// freely.
func (s *Supervisor) Hold(files ...*os.File) error {
	if len(files) > guardian.MaxHeld {
		return fmt.Errorf("hold %d files: %d at most", len(files), guardian.MaxHeld)
	}
	var fds []int
	for _, f := range files {
		fd, err := Duplicate(f)
		if err != nil {
			frame.Close(fds)
			return fmt.Errorf("hold %s: %w", f.Name(), err)
		}
		fds = append(fds, fd)
	}
	s.guard.Hold(fds)
	return nil
}

// Proof returns the bytes that the guardian sends on held sockets before it closes them. If the
// kernel killed this process for want of memory, the guardian sends a text whose SHA-256 is the
// proof. A peer that knows the proof must not take any other end of a connection for a death,
// because a firewall or a proxy may also close connections.
func (s *Supervisor) Proof() [32]byte { return s.guard.Proof() }

// Duplicate returns another descriptor of an open file, and leaves the file non-blocking, which
// File.Fd would not.
func Duplicate(f syscall.Conn) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = conn.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(err, dupErr)
}

// Close kills the remaining processes, waits until none lives, ends the guardian and the held
// sockets, and removes the cgroups. If processes outlive SIGKILL for two minutes, it names them,
// and the guardian stays with them.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	scopes := make([]*Scope, 0, len(s.scopes))
	for sc := range s.scopes {
		scopes = append(scopes, sc)
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := each(scopes, (*Scope).Close)
	if s.needsSweep() {
		err = errors.Join(err, sweep.Sweep(nil, s.unmarked(s.isOrphan), time.Now().Add(procfs.KillLimit)))
	}
	if err != nil {
		return err
	}
	s.guard.Close()
	if s.home != nil {
		err = s.home.Remove()
	}
	if err == nil {
		err = s.record.Remove()
	}
	if s.opts.Subreaper {
		err = errors.Join(err, s.disownOrphans())
	}
	close(s.spawner)
	return errors.Join(err, s.null.Close())
}

// each calls f for all scopes at once and returns all errors.
func each(scopes []*Scope, f func(*Scope) error) error {
	errs := make([]error, len(scopes))
	var wg sync.WaitGroup
	for i, sc := range scopes {
		wg.Go(func() { errs[i] = f(sc) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
