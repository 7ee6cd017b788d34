package proc

// knows reports whether pid is a process that this supervisor started. Who asks has seen the process, so its fork, if it is a
// fork of ours, has begun: once no fork is in flight, it is in the table.
func (s *Supervisor) knows(pid int) bool {
	s.forks.Lock()
	defer s.forks.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[pid]
}

// add and forget keep the table of processes that were started and not yet reaped.
func (s *Supervisor) add(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[pid] = true
}

func (s *Supervisor) forget(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, pid)
}

// end notes that a scope is empty.
func (s *Supervisor) end(sc *Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes[sc] = false
}

// orphans returns how a scope that ends finds the orphans that nothing marks as its own, when the supervisor adopts orphans and
// the kernel does not keep them in a cgroup. They may be those of other scopes, so it takes the last one that lives.
func (s *Supervisor) orphans() func(stat) bool {
	if s.home != nil || !s.opts.Subreaper {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := 0
	for _, lives := range s.scopes {
		if lives {
			live++
		}
	}
	if live > 1 {
		s.unswept = true
		return nil
	}
	return s.orphan
}

func (s *Supervisor) needsSweep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unswept
}
