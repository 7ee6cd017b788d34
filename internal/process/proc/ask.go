package proc

import (
	"os"
	"runtime"
	"slices"
	"time"
)

// ask has the command's Forker make the process. Only who signals or stops this scope waits for that: other scopes owe it nothing.
func (sc *Scope) ask(c *Command, files []uintptr) (p *Process, err error) {
	sc.asking.RLock()
	defer sc.asking.RUnlock()
	if err := sc.refuses(); err != nil {
		return nil, err
	}
	sc.sup.ask(1)
	defer sc.sup.ask(-1)
	c.born = func(pid int) (err error) {
		p, err = sc.admit(pid, c.Rights)
		return err
	}
	c.apart = func() error { return p.separate(c.Rights) }
	_, run, err := c.Forker.Fork(c, append([]string{sc.marker}, c.Env...), files, sc.cgroupFD)
	runtime.KeepAlive(c)
	if err != nil {
		p.discard()
		return nil, err
	}
	p.forked = true
	go p.wait(sc.explain)
	run()
	return p, nil
}

// discard ends a process that was made and cannot be used, if there is one. Its scope reaps it as any other.
func (p *Process) discard() {
	if p == nil {
		return
	}
	p.handle.kill()
	go p.wait(func(*Process) {})
}

// ask counts the calls of Forkers that have not returned.
func (s *Supervisor) ask(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked += n
}

// collect ends and reaps what was forked of the processes of a scope and never said to be: such a child is in their sessions still. A
// subreaper reaps it anyway.
func (sc *Scope) collect(deadline time.Time) error {
	if !sc.serves.Load() || sc.sup.opts.Subreaper {
		return nil
	}
	sessions := sc.trail().sessions
	lost := sc.sup.unmarked(func(st stat) bool {
		return st.ppid == os.Getpid() && slices.Contains(sessions, st.session) && !sc.sup.knows(st)
	})
	if err := sweep(nil, lost, deadline); err != nil {
		return err
	}
	return bury(lost)
}
