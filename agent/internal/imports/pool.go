package imports

import (
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

// Pool keeps fork servers for the next job of the same user with the same interpreter, modules and
// environment. A nil Pool keeps none.
type Pool struct {
	warn func(error)

	mu     sync.Mutex
	idle   []*Server // the oldest comes first
	closed bool
	// refusals are keys for which no server can fork, the newest last.
	refusals []refusal
}

// refusal is why a server could not fork, with the files that its modules came from.
type refusal struct {
	key string
	why *forkserver.UnsafeError
}

// maxRefusals bounds the refusals. Forgetting a refusal costs another import of its modules.
const maxRefusals = 8

// An idle server uses as much memory as one rank after its imports. So poolSize bounds the number
// of idle servers, and poolTime bounds how long they stay.
const (
	poolSize = 2
	poolTime = 10 * time.Minute
)

// NewPool returns an empty pool. Warn is called when a server cannot be ended.
func NewPool(warn func(error)) *Pool { return &Pool{warn: warn} }

// take returns a server with a key, which the caller then owns, or nil.
func (p *Pool) take(key string) *Server {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.idle, func(s *Server) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	s := p.idle[i]
	s.expiry.Stop()
	p.idle = slices.Delete(p.idle, i, i+1)
	return s
}

// refuse remembers that no server with a key can fork, and why.
func (p *Pool) refuse(key string, why *forkserver.UnsafeError) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = append(slices.DeleteFunc(p.refusals, func(r refusal) bool { return r.key == key }), refusal{key, why})
	p.refusals = p.refusals[max(0, len(p.refusals)-maxRefusals):]
}

// refused says why no server with a key can fork. It returns nil if it knows no reason, or if the
// modules have changed since.
func (p *Pool) refused(key string, rights *safefile.Rights) *forkserver.UnsafeError {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	i := slices.IndexFunc(p.refusals, func(r refusal) bool { return r.key == key })
	var why *forkserver.UnsafeError
	if i >= 0 {
		why = p.refusals[i].why
	}
	p.mu.Unlock()
	if why != nil && changed(why.Files, rights) == nil {
		return why
	}
	return nil
}

// put keeps a server. If the pool is full, put ends the oldest server. It ends s itself if s is
// unusable, or if there is no pool.
func (p *Pool) put(s *Server, warn func(error)) {
	if p == nil || !s.usable() {
		s.end(warn)
		return
	}
	p.mu.Lock()
	s.expiry = time.AfterFunc(poolTime, func() { p.expire(s) })
	p.idle = append(p.idle, s)
	excess := max(0, len(p.idle)-poolSize)
	if p.closed {
		excess = len(p.idle)
	}
	ended := slices.Clone(p.idle[:excess])
	p.idle = slices.Delete(p.idle, 0, excess)
	p.mu.Unlock()
	for _, s := range ended {
		s.end(p.warn)
	}
}

// expire ends a server that has been idle for poolTime.
func (p *Pool) expire(s *Server) {
	p.mu.Lock()
	i := slices.Index(p.idle, s)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		s.end(p.warn)
	}
}

// Close ends all servers.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range idle {
		s.end(p.warn)
	}
}
