// Package proc starts the processes of ranks and makes sure that none outlives its purpose.
//
// A [Supervisor] has [Scope]s, one for each attempt of a unit, and a scope has the [Process]es that end together, with all their
// descendants. What holds descendants together is, in this order:
//
//   - a cgroup v2 of the scope, where one can be made: cgroup.kill reaches whatever was forked (Linux 5.14 and later);
//   - else each rank's session, a marker in the environment of all that descends from it, and orphans that the supervisor adopts
//     as their subreaper. Only a process that left its session, cleared its environment and lost its parent can then escape, and
//     only when the supervisor is not a subreaper or was itself killed.
//
// Two things act when the supervisor's own process dies, even by SIGKILL: PR_SET_PDEATHSIG kills the ranks, and the guardian, a
// small process of its own ("rankguard"), kills all scopes. Where both die at once, the next supervisor of the user on the
// machine does, before it starts anything. The guardian also keeps a lease, see [Supervisor.Renew], and proves the death of all
// to others, see [Supervisor.Hold].
//
// A rank that ended stays a zombie until its scope ends, so that its number, which names its session and its process group,
// cannot come to mean anything else.
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
)

// killLimit bounds the wait for processes that were sent SIGKILL: one that the kernel cannot end for that long hangs in a
// driver or a file system.
const killLimit = 2 * time.Minute

// Options are a supervisor's choices.
type Options struct {
	// Subreaper says that the calling process exists for its supervisor alone: it adopts the orphans of its ranks
	// (PR_SET_CHILD_SUBREAPER) and reaps every child that is in a session other than its own. Leave it false inside a program
	// that starts processes of its own with Setsid.
	Subreaper bool
	// Warn hears what went wrong without failing a call, such as the death of the guardian. It is called from any goroutine.
	// Nil discards.
	Warn func(error)

	// noCgroup makes the supervisor behave as on a machine where no cgroup is writable.
	noCgroup bool
}

// Supervisor starts processes and ends them. Its methods may be called from several goroutines.
type Supervisor struct {
	opts    Options
	session int
	// since is before anything that was started.
	since Epoch
	// marker begins the variable that marks each process.
	marker string
	// home has a subgroup for each scope; nil when no cgroup can be made.
	home    *home
	record  *record
	null    *os.File
	spawner chan func(*thread)
	guard   *guard
	reaped  chan struct{}
	reaper  sync.WaitGroup

	// forks is held for reading during a fork until the new process is in pids; not during one of a Forker, of which asked are under way.
	forks  sync.RWMutex
	mu     sync.Mutex
	pids   map[int]bool
	asked  int
	made   int
	closed bool
	// scopes are those not closed; true for those that have not ended.
	scopes map[*Scope]bool
	// unswept says that a scope ended while others lived, so that orphans without a mark may be left of it.
	unswept bool
}

// New returns a supervisor with no scope; its guardian starts up in the background. What earlier supervisors of this user have left on this
// machine, killed together with their guardians, is dead by then. It fails when that outlives SIGKILL, or the kernel refuses what supervision
// needs.
func New(opts Options) (*Supervisor, error) {
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("get the session of this process: %w", err)
	}
	if err := endStale(time.Now().Add(staleLimit)); err != nil {
		return nil, fmt.Errorf("end what an earlier golaunch has left on this node: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the input of ranks that have none: %w", err)
	}
	s := &Supervisor{
		opts: opts, session: session, since: NewEpoch(), marker: "RANKGUARD_" + rand.Text() + "_", null: null,
		spawner: make(chan func(*thread)), reaped: make(chan struct{}),
		pids: map[int]bool{}, scopes: map[*Scope]bool{},
	}
	if opts.Subreaper {
		if err := s.adopt(); err != nil {
			return nil, errors.Join(err, null.Close())
		}
	}
	left := recorded{Marker: s.marker, Since: s.since}
	if !opts.noCgroup {
		s.home = makeHome()
	}
	if s.home != nil {
		left.Cgroup = s.home.dir
	}
	s.record = newRecord(left)
	s.guard = newGuard(s)
	for range min(runtime.GOMAXPROCS(0), 4) {
		go spawn(s.spawner)
	}
	return s, nil
}

// Scope returns a new scope without processes; name is for people. It fails when the cgroup of the scope cannot be made.
func (s *Supervisor) Scope(name string) (*Scope, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("scope %s: the supervisor is closed", name)
	}
	s.made++
	sc, err := newScope(s, name, s.made)
	if err != nil {
		return nil, err
	}
	s.scopes[sc] = true
	s.guard.add(sc.trail())
	return sc, nil
}

// Renew gives all ranks a lease from now on: the guardian kills every scope when none follows in time. 0 ends the lease. The
// time that the machine sleeps or is paused counts (CLOCK_BOOTTIME), and so does the time that this process is stopped.
func (s *Supervisor) Renew(lease time.Duration) {
	if lease <= 0 {
		s.guard.renew(0)
		return
	}
	s.guard.renew(BootTime() + lease)
}

// Hold gives the guardian duplicates of sockets, 128 at most, in place of the former ones. When this process has died, or closed the
// supervisor, and no rank lives, each of them ends with the proof of that; what this process does with them until then is its own affair.
func (s *Supervisor) Hold(files ...*os.File) error {
	if len(files) > maxHeld {
		return fmt.Errorf("hold %d files: %d at most", len(files), maxHeld)
	}
	var fds []int
	for _, f := range files {
		fd, err := Duplicate(f)
		if err != nil {
			closeAll(fds)
			return fmt.Errorf("hold %s: %w", f.Name(), err)
		}
		fds = append(fds, fd)
	}
	s.guard.hold(fds)
	return nil
}

// Proof is what the sockets that are held end with, or what has it as its SHA-256 where the kernel
// killed this process for want of memory. A peer that is told its hash believes no other end: what
// is between may end a
// connection as well.
func (s *Supervisor) Proof() [32]byte { return s.guard.proof }

// Duplicate returns another descriptor of an open file, which whoever shares the file may go on to use without blocking: File.Fd
// would make it block for all.
func Duplicate(f syscall.Conn) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = conn.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(err, dupErr)
}

// Close kills what is left, waits until nothing lives, ends the guardian and the sockets that are held, and removes the cgroups. It says
// which processes outlive SIGKILL for two minutes; the guardian then stays with them.
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
		err = errors.Join(err, sweep(nil, s.unmarked(s.orphan), time.Now().Add(killLimit)))
	}
	if err != nil {
		return err
	}
	s.guard.close()
	if s.home != nil {
		err = s.home.remove()
	}
	if err == nil {
		err = s.record.end()
	}
	if s.opts.Subreaper {
		err = errors.Join(err, s.disown())
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
