package agent

import (
	"fmt"
	"sync"
	"time"
)

// pool keeps fork servers for the next job of the same user with the same interpreter, modules and environment.
type pool struct {
	warn func(error)

	mu     sync.Mutex
	idle   []*warm // the one that has been here longest comes first
	closed bool
}

// A server has the memory of a rank after its imports; poolSize bounds how many nobody uses, and poolTime for how long.
const (
	poolSize = 2
	poolTime = 10 * time.Minute
)

// take returns a server for a key, which is the caller's then, or nil.
func (p *pool) take(key string) *warm {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.idle {
		if w.key == key {
			w.expiry.Stop()
			p.idle = append(p.idle[:i:i], p.idle[i+1:]...)
			return w
		}
	}
	return nil
}

// put keeps a server, unless it cannot be used any more or there is no pool. It may end another instead.
func (p *pool) put(w *warm, warn func(error)) {
	if p == nil || !w.usable() {
		w.end(warn)
		return
	}
	p.mu.Lock()
	w.expiry = time.AfterFunc(poolTime, func() { p.expire(w) })
	p.idle = append(p.idle, w)
	var excess []*warm
	if n := len(p.idle) - poolSize; p.closed || n > 0 {
		if p.closed {
			n = len(p.idle)
		}
		excess, p.idle = p.idle[:n:n], p.idle[n:]
	}
	p.mu.Unlock()
	for _, w := range excess {
		w.end(p.warn)
	}
}

// expire ends a server that has been idle for long.
func (p *pool) expire(w *warm) {
	p.mu.Lock()
	var found *warm
	for i, other := range p.idle {
		if other == w {
			found, p.idle = w, append(p.idle[:i:i], p.idle[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if found != nil {
		found.end(p.warn)
	}
}

// close ends all servers.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, w := range idle {
		w.end(p.warn)
	}
}

// keyOf is the same for servers that fork the same. The directory counts: the interpreter, and PYTHONPATH, may be relative to it.
func (p *preload) keyOf(env []string) string {
	task := p.share.work.Task
	return fmt.Sprintf("%q %q %q %q %q %v", p.program.Interpreter, p.program.Flags, task.Dir, task.Preload, env, p.share.rights())
}
