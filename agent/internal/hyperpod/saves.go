package hyperpod

import (
	"maps"
	"slices"
	"sync"
)

// save is a checkpoint.
type save struct {
	Step int64  `json:"step"`
	Path string `json:"path"`
}

// Saves are the checkpoints that the ranks of a job on this node have reported, in all its attempts
// so far.
type Saves struct {
	mu     sync.Mutex
	prefix string
	// kinds is how many ranks here save a checkpoint of each kind.
	kinds map[string]int
	// partial has the ranks that have saved a checkpoint, by step and kind, until it is complete.
	partial map[int64]map[string]map[int]bool
	// newest is the newest checkpoint that all ranks here have saved; nil before the first. told
	// says that a rank has saved something.
	newest *save
	told   bool
}

const (
	// maxKinds and maxPath bound what a rank says about a checkpoint. maxPartial bounds the steps
	// whose checkpoint is not complete.
	maxKinds   = 8
	maxPath    = 4096
	maxPartial = 16
)

// begin notes how many ranks here save.
func (s *Saves) begin(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix != m.Prefix || s.kinds == nil {
		s.prefix, s.kinds, s.partial = m.Prefix, map[string]int{}, nil
	}
	for kind, n := range m.Kinds {
		if len(s.kinds) < maxKinds && len(kind) <= maxClient {
			s.kinds[kind] = n
		}
	}
}

// saved notes what a rank has saved. The checkpoint is complete when as many ranks have saved it as
// begin was told.
func (s *Saves) saved(rank int, m message) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.kinds[m.Kind]; !known || len(m.Path) > maxPath {
		return false
	}
	s.told = true
	if s.partial[m.Step] == nil {
		if s.partial == nil {
			s.partial = map[int64]map[string]map[int]bool{}
		}
		if len(s.partial) >= maxPartial {
			delete(s.partial, slices.Min(slices.Collect(maps.Keys(s.partial))))
		}
		s.partial[m.Step] = map[string]map[int]bool{}
	}
	kinds := s.partial[m.Step]
	if kinds[m.Kind] == nil {
		kinds[m.Kind] = map[int]bool{}
	}
	kinds[m.Kind][rank] = true
	for kind, n := range s.kinds {
		if len(kinds[kind]) < n {
			return true
		}
	}
	delete(s.partial, m.Step)
	if s.newest == nil || m.Step > s.newest.Step {
		s.newest = &save{m.Step, m.Path}
	}
	return true
}

// state returns what the other nodes learn: whether ranks here save, and the newest checkpoint that
// all of them have saved.
func (s *Saves) state() (told bool, newest *save) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told, s.newest
}

// agree makes a run begin from the newest checkpoint that all saving nodes have. It ignores nodes
// whose ranks have saved nothing, because these may have begun after that checkpoint.
func (s *Saves) agree(arrivals []arrival) {
	var agreed *save
	for _, a := range arrivals {
		switch {
		case a.Saves && a.Saved == nil:
			return
		case a.Saved != nil && (agreed == nil || a.Saved.Step < agreed.Step):
			agreed = a.Saved
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest, s.partial = agreed, nil
}

// path returns the path of the newest checkpoint; nil if there is no checkpoint.
func (s *Saves) path() *string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil
	}
	return &s.newest.Path
}
