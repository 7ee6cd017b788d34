package proc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Scope is a set of processes that end together, with all their descendants.
type Scope struct {
	sup    *Supervisor
	name   string
	marker string
	// since is an epoch before the start of all its processes.
	since procfs.Epoch
	group scopeGroup
	// killed says that from now on SIGKILLs come from this program.
	killed atomic.Bool
	// rush ends grace periods when hurry closes it.
	rush  chan struct{}
	hurry func()
	forks scopeForks

	mu sync.Mutex
	// procs has the processes that were started, and does not grow once the scope is barred. The
	// kernel does not reuse the numbers of these processes until the scope has ended.
	procs         []*Process
	barred, ended bool

	// ending is held while the scope is killed.
	ending sync.Mutex
	closed bool
}

// scopeForks is a scope's use of Forkers.
type scopeForks struct {
	// serves says that a Forker makes forks of one of the scope's processes.
	serves atomic.Bool
	// asking is held for reading while a Forker makes a process of the scope, which may take long.
	asking sync.RWMutex
	// waiting are processes of the scope that wait to become processes of commands. The scope's mu
	// guards it.
	waiting []*waiter
}

// scopeGroup is a scope's cgroup: its directory, open as fd; "" and -1 without cgroups.
type scopeGroup struct {
	dir string
	fd  int
	oom *cgroup.OOMCounter
}

// Scope returns a new scope without processes; name is for people. It fails if the cgroup of the
// scope cannot be made.
func (s *Supervisor) Scope(name string) (*Scope, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("scope %s: the supervisor is closed", name)
	}
	s.made++
	sc := &Scope{sup: s, name: name, since: procfs.NewEpoch(), group: scopeGroup{fd: -1}, rush: make(chan struct{})}
	sc.hurry = sync.OnceFunc(func() { close(sc.rush) })
	sc.marker = fmt.Sprintf("%s%d=%s", s.marker, s.made, plain(name))
	if s.home != nil {
		var err error
		if sc.group.dir, sc.group.fd, err = s.home.Make(s.made, plain(name)); err != nil {
			return nil, fmt.Errorf("scope %s: %w", name, err)
		}
	}
	sc.group.oom = cgroup.NewOOMCounter(sc.group.dir)
	s.scopes[sc] = true
	s.guard.Add(sc.trail())
	return sc, nil
}

// plain makes a name fit for a directory or a variable.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '.') {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 100)]
}

// Env returns the variable, NAME=value, that marks every process of the scope. Start adds it.
func (sc *Scope) Env() string { return sc.marker }

// Start starts one process, in a session of its own. The error is a [*StartError]. A call takes as
// long as the kernel takes to fork and exec. Several goroutines may call it; two per CPU use the
// machine fully.
func (sc *Scope) Start(c Command) (*Process, error) {
	files, path, fail := prepare(&c, sc.sup.null)
	if fail != nil {
		return nil, fail
	}
	if err := sc.sup.guard.Ready(); err != nil {
		return nil, c.failure(codeOwn, "%v", err)
	}
	p, err := sc.fork(path, &c, files)
	if err != nil {
		return nil, err
	}
	if err := sc.keepsLease(); err != nil {
		return nil, c.failure(codeOwn, "%v", err)
	}
	return p, nil
}

// keepsLease kills the scope and returns an error if the lease has expired. In that case this
// process was stopped, and the guardian may have killed the scope before the newest fork.
func (sc *Scope) keepsLease() error {
	if !sc.sup.guard.Expired(procfs.BootTime()) {
		return nil
	}
	if err := sc.Kill(); err != nil {
		return fmt.Errorf("the lease has expired, and %w", err)
	}
	return errors.New("the lease has expired")
}

// fork makes the process by the command's Forker, or else by fork and exec.
func (sc *Scope) fork(path string, c *Command, files []uintptr) (*Process, error) {
	if c.Forker == nil {
		return sc.exec(path, c, files)
	}
	p, why := sc.forkByServer(c, files)
	switch {
	case why == nil:
		return p, nil
	case c.ForkOnly:
		return nil, c.failure(codeOwn, "it cannot be forked: %v", why)
	}
	p, err := sc.exec(path, c, files)
	if err != nil {
		return nil, err
	}
	p.unforked = why
	return p, nil
}

func (sc *Scope) exec(path string, c *Command, files []uintptr) (*Process, error) {
	var p *Process
	_, err := sc.sup.table.start(func() (int, error) {
		if err := sc.refuses(); err != nil {
			return 0, c.failure(codeOwn, "%v", err)
		}
		if c.Serves {
			sc.forks.serves.Store(true)
		}
		pid, fail := sc.forkExec(path, c, files)
		if fail != nil {
			return 0, fail
		}
		p = &Process{pid: pid, done: make(chan struct{})}
		sc.enlist(p)
		return pid, nil
	})
	if err != nil {
		return nil, err
	}
	go p.wait(sc.explain)
	return p, nil
}

// refuses returns the reason why no process can be started any more.
func (sc *Scope) refuses() error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.barred {
		return fmt.Errorf("scope %s is being stopped", sc.name)
	}
	return nil
}

// enlist adds a process to the scope.
func (sc *Scope) enlist(p *Process) {
	sc.mu.Lock()
	sc.procs = append(sc.procs, p)
	sc.mu.Unlock()
	if sc.group.dir == "" {
		sc.sup.guard.AddSession(sc.marker, p.pid)
	}
}

// explain marks the exit of a process that the kernel killed for want of memory.
func (sc *Scope) explain(p *Process) {
	if p.exit.Signal == int(unix.SIGKILL) && !sc.killed.Load() {
		p.exit.OOM = sc.group.oom.Claim()
	}
}

// trail identifies the processes of the scope.
func (sc *Scope) trail() sweep.Trail {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	t := sweep.Trail{Marker: sc.marker, Cgroup: sc.group.dir, Sessions: make([]int, len(sc.procs)), Since: sc.since}
	for i, p := range sc.procs {
		t.Sessions[i] = p.pid
	}
	return t
}

// Member has facts about a process of a scope at one moment.
type Member struct {
	PID int
	// Leader is the process that was started and leads the session.
	Leader int
	Name   string
	// State is the kernel's letter: R, S, D, T, t (proc_pid_stat(5)). A zombie is no member.
	State byte
	// CPU is the processor time of the process and of its children that have ended. Faults counts
	// the pages that they have touched for the first time: a process that computes touches new
	// pages all the time, and a process that spins in a wait does not.
	CPU    time.Duration
	Faults uint64
	// IO counts bytes of read(2), write(2) and the like, on files and pipes; 0 if unknown.
	IO uint64
	// Memory is the resident memory of the process in bytes, shared memory included.
	Memory uint64
}

// Members returns the living processes in the sessions of the processes that were started, in no
// order.
func (sc *Scope) Members() ([]Member, error) { return members(sc.trail()) }

// Members returns the living processes in the sessions of leaders, which another process has
// started since an epoch.
func Members(leaders []int, since procfs.Epoch) ([]Member, error) {
	return members(sweep.Trail{Sessions: leaders, Since: since})
}

func members(t sweep.Trail) ([]Member, error) {
	pids, err := t.Candidates()
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, pid := range pids {
		st, ok := procfs.ReadStat(pid)
		if !ok || st.Dead() || !slices.Contains(t.Sessions, st.Session) {
			continue
		}
		members = append(members, Member{
			PID: pid, Leader: st.Session, Name: st.Comm, State: st.State,
			CPU: time.Duration(st.Ticks) * procfs.Tick, Faults: st.Faults, IO: procfs.Transferred(pid),
			Memory: st.Pages * uint64(unix.Getpagesize()),
		})
	}
	return members, nil
}
