package proc

import (
	"maps"
	"slices"
)

// knows reports whether a process is one that this supervisor started. Who asks has seen the process, so its fork, if it is a
// fork of ours, has begun: once no fork is in flight, it is in the table. A Forker may take long, and is not waited for; while one is at
// work, what is in the session of a process of ours may be its child.
func (s *Supervisor) knows(st stat) bool {
	s.forks.Lock()
	defer s.forks.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[st.pid] || s.asked > 0 && s.pids[st.session]
}

// add and forget keep the table of processes that were started and not yet reaped.
func (s *Supervisor) add(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[pid] = true
}

// claim is add for a process that may be in the table already, and reports whether it was not.
func (s *Supervisor) claim(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pids[pid]
	s.pids[pid] = true
	return !known
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
// the kernel does not keep them in a cgroup. They may be those of other scopes, so it takes the last one that lives, but for those of
// which is forked: these live on, and what is theirs as far as it shows stays.
func (s *Supervisor) orphans(ending *Scope) *unmarked {
	if s.home != nil || !s.opts.Subreaper {
		return nil
	}
	servers, others := s.others(ending)
	if others {
		return nil
	}
	return s.unmarked(func(st stat) bool {
		return s.orphan(st) && !slices.ContainsFunc(servers, func(sc *Scope) bool { return sc.trail().owns(st) })
	})
}

// others are the scopes that live beside one that ends: those of which is forked, and whether there are any that are not.
func (s *Supervisor) others(ending *Scope) (servers []*Scope, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sc, lives := range s.scopes {
		switch {
		case !lives || sc == ending:
		case sc.serves.Load():
			servers = append(servers, sc)
		default:
			s.unswept = true
			return nil, true
		}
	}
	return servers, false
}

// unmarked are processes that this one may find among those that have begun since it supervises.
func (s *Supervisor) unmarked(match func(stat) bool) *unmarked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &unmarked{match: match, since: s.since, known: slices.Collect(maps.Keys(s.pids))}
}

func (s *Supervisor) needsSweep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unswept
}
