package proc

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"golang.org/x/sys/unix"
)

// Scope is a set of processes that end together, with everything that descends from them.
type Scope struct {
	sup    *Supervisor
	name   string
	marker string
	// since is before any of its processes.
	since Epoch
	// cgroup is the scope's directory and cgroupFD the same, open; empty and -1 without cgroups.
	cgroup   string
	cgroupFD int
	oom      *oomCounter
	// killed says that SIGKILLs are ours from now on.
	killed atomic.Bool
	hurry  func()
	rush   chan struct{}
	// serves says that a Forker forks of one of its processes.
	serves atomic.Bool
	// asking is held for reading while a Forker makes a process of the scope, which may take long.
	asking sync.RWMutex

	mu sync.Mutex
	// procs is complete once the scope is barred, and their numbers are good until it has ended.
	procs         []*Process
	barred, ended bool

	// ending is held by the one who kills.
	ending sync.Mutex
	closed bool
}

func newScope(s *Supervisor, name string, n int) (*Scope, error) {
	sc := &Scope{sup: s, name: name, since: NewEpoch(), cgroupFD: -1, rush: make(chan struct{})}
	sc.hurry = sync.OnceFunc(func() { close(sc.rush) })
	sc.marker = fmt.Sprintf("%s%d=%s", s.marker, n, plain(name))
	if s.home != nil {
		var err error
		if sc.cgroup, sc.cgroupFD, err = s.home.makeGroup(n, plain(name)); err != nil {
			return nil, fmt.Errorf("scope %s: %w", name, err)
		}
	}
	sc.oom = newOOMCounter(sc.cgroup)
	return sc, nil
}

// plain is a name for a directory or a variable.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '.') {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 100)]
}

// Env returns the variable, NAME=value, that marks every process of the scope. Start adds it by itself.
func (sc *Scope) Env() string { return sc.marker }

// Start starts one process, in a session of its own. The error is a [*StartError]. A call takes as long as the kernel takes to
// fork and exec; several goroutines may start at once, and two per CPU use the machine fully.
func (sc *Scope) Start(c Command) (*Process, error) {
	files, path, fail := prepare(&c, sc.sup.null)
	if fail != nil {
		return nil, fail
	}
	if err := sc.sup.guard.ready(); err != nil {
		return nil, c.failure(codeOwn, "%v", err)
	}
	p, err := sc.fork(path, &c, files)
	if err != nil {
		return nil, err
	}
	if end := sc.sup.guard.lease.Load(); end != 0 && int64(BootTime()) > end {
		// This process was stopped, and the guardian may have looked before the fork.
		if err := sc.Kill(); err != nil {
			return nil, c.failure(codeOwn, "the lease has expired, and %v", err)
		}
		return nil, c.failure(codeOwn, "the lease has expired")
	}
	return p, nil
}

// fork makes the process by the command's Forker, or else as path.
func (sc *Scope) fork(path string, c *Command, files []uintptr) (*Process, error) {
	if c.Forker == nil {
		return sc.exec(path, c, files)
	}
	p, why := sc.ask(c, files)
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
	sc.sup.forks.RLock()
	defer sc.sup.forks.RUnlock()
	if err := sc.refuses(); err != nil {
		return nil, c.failure(codeOwn, "%v", err)
	}
	if c.Serves {
		sc.serves.Store(true)
	}
	pid, fail := sc.sup.fork(path, c, sc.marker, files, sc.cgroupFD)
	if fail != nil {
		return nil, fail
	}
	sc.sup.add(pid)
	p := &Process{pid: pid, done: make(chan struct{})}
	sc.enlist(p)
	go p.wait(sc.explain)
	return p, nil
}

// refuses says why no process can be started any more.
func (sc *Scope) refuses() error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.barred {
		return fmt.Errorf("scope %s is being stopped", sc.name)
	}
	return nil
}

// enlist makes a process one of the scope, which is in the table already.
func (sc *Scope) enlist(p *Process) {
	sc.mu.Lock()
	sc.procs = append(sc.procs, p)
	sc.mu.Unlock()
	if sc.cgroup == "" {
		sc.sup.guard.track(sc.marker, p.pid)
	}
}

// explain names an out-of-memory kill.
func (sc *Scope) explain(p *Process) {
	if p.exit.Signal == int(unix.SIGKILL) && !sc.killed.Load() {
		p.exit.OOM = sc.oom.claim()
	}
}

// trail says what the processes of the scope are found by.
func (sc *Scope) trail() trail {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	t := trail{marker: sc.marker, cgroup: sc.cgroup, sessions: make([]int, len(sc.procs)), since: sc.since}
	for i, p := range sc.procs {
		t.sessions[i] = p.pid
	}
	return t
}
