package agent

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

// pool keeps fork servers for the next job of the same user with the same interpreter, modules and environment.
type pool struct {
	warn func(error)

	mu     sync.Mutex
	idle   []*warm // the one that has been here longest comes first
	closed bool
	// refusals are keys of which no server can fork, the newest last.
	refusals []refusal
}

// refusal is why a server could not fork anything, with the files that its modules had come from.
type refusal struct {
	key string
	why *forkserver.UnsafeError
}

// maxRefusals bounds what is remembered of servers that could not fork: each costs a new one an import of its modules.
const maxRefusals = 8

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

// refuse remembers that no server of a key can fork.
func (p *pool) refuse(key string, why *forkserver.UnsafeError) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = append(slices.DeleteFunc(p.refusals, func(r refusal) bool { return r.key == key }), refusal{key, why})
	p.refusals = p.refusals[max(0, len(p.refusals)-maxRefusals):]
}

// refused says why no server of a key can fork, if that is known and its modules are as they were then.
func (p *pool) refused(key string, rights *safefile.Rights) *forkserver.UnsafeError {
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
	if why == nil || changed(why.Files, rights) != "" {
		return nil
	}
	return why
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
