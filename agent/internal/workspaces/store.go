// Package workspaces gives the jobs of a node the workspaces that their ranks run in.
//
// A workspace comes to the node once, from the coordinator or from another node that has the
// workspace. This node then serves it to others. Each job gets a directory of its own.
package workspaces

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

// Options configure a store.
type Options struct {
	Cache *workspace.Cache
	// Coordinator gets workspaces; see [session.Session.Fetch].
	Coordinator interface {
		Fetch(ctx context.Context, w report.Workspace, f *session.Fetcher) error
	}
	// Addr is where this node serves workspaces to others. Server is the TLS configuration for this
	// service, and Client the TLS configuration to get workspaces from other nodes. Without them
	// this node serves no workspaces, and gets them only from the coordinator.
	Addr           netip.Addr
	Server, Client *tls.Config
	// Warn gets the reason why workspaces cannot be served.
	Warn func(error)
}

// Store has the workspaces of a node until Close.
type Store struct {
	Options
	mu    sync.Mutex
	items map[string]*item
	// listener is nil before the first workspace is here. unserved says that no listener is
	// possible.
	listener net.Listener
	unserved bool
	// within are the ports that the newest job permits.
	within  ports.Range
	serving sync.WaitGroup
	// closing ends the service to other nodes.
	closing context.Context
	end     context.CancelFunc
}

// New returns a store. It does nothing before a job has a workspace.
func New(o Options) *Store {
	s := &Store{Options: o, items: map[string]*item{}}
	s.closing, s.end = context.WithCancel(context.Background())
	return s
}

// item is a workspace that jobs of this node use.
type item struct {
	want  report.Workspace
	users int
	// came counts the bytes that have arrived.
	came atomic.Int64
	// ready is closed when archive is here, or when err says why it cannot be.
	ready   chan struct{}
	archive *workspace.Archive
	err     error
	// cancel ends the item's goroutine. ended is closed when the goroutine has ended.
	cancel context.CancelFunc
	ended  chan struct{}
}

// take begins to use a workspace. The caller must call release.
func (s *Store) take(w report.Workspace) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[w.ID]
	if it == nil {
		ctx, cancel := context.WithCancel(context.Background())
		it = &item{want: w, ready: make(chan struct{}), cancel: cancel, ended: make(chan struct{})}
		s.items[w.ID] = it
		go s.run(ctx, it)
	}
	it.users++
	return it
}

func (s *Store) release(it *item) {
	s.mu.Lock()
	it.users--
	last := it.users == 0
	if last && s.items[it.want.ID] == it {
		delete(s.items, it.want.ID)
	}
	s.mu.Unlock()
	if last {
		it.cancel()
	}
}

// run gets a workspace, and serves it until ctx ends.
func (s *Store) run(ctx context.Context, it *item) {
	defer close(it.ended)
	p := partial{store: s, item: it}
	defer p.close()
	archive, err := s.Cache.Get(it.want)
	switch {
	case err == nil:
		p.done(archive)
	case !errors.Is(err, fs.ErrNotExist):
		p.fail(err)
		return
	}
	if archive != nil && s.Server == nil {
		<-ctx.Done()
		return
	}
	err = s.Coordinator.Fetch(ctx, it.want, &session.Fetcher{Have: archive != nil, Begin: p.begin, Write: p.write, Fetch: p.fetch, End: p.end})
	if it.archive == nil {
		p.fail(fmt.Errorf("cannot get workspace %.12s: %w", it.want.ID, err))
		return
	}
	<-ctx.Done() // jobs still unpack it, even if no other node gets it from this one
}

// partial is a workspace that has arrived in part. It belongs to the goroutine that fetches it.
type partial struct {
	store *Store
	item  *item
	in    *workspace.Incoming
	// failed says why nothing more can be written.
	failed error
}

func (p *partial) begin() (err error) {
	p.item.came.Store(0)
	if p.failed != nil {
		return p.failed
	}
	if p.in != nil {
		return p.in.Rewind()
	}
	p.in, err = p.store.Cache.Receive(p.item.want)
	return err
}

func (p *partial) write(b []byte) error {
	n, err := p.in.Write(b)
	p.item.came.Add(int64(n))
	p.failed = err
	return err
}

func (p *partial) fetch(ctx context.Context, addr string) error {
	return fetch(ctx, addr, p.store.Client, p.item.want, p.write)
}

// end keeps what has arrived, and returns where other nodes can get it.
func (p *partial) end() (string, error) {
	if p.item.archive == nil {
		a, err := p.in.Commit()
		if err != nil {
			return "", err
		}
		p.done(a)
	}
	return p.store.address(), nil
}

func (p *partial) done(a *workspace.Archive) {
	p.item.archive = a
	close(p.item.ready)
}

// fail passes the error to the jobs that use the workspace, and lets others try again.
func (p *partial) fail(err error) {
	s := p.store
	s.mu.Lock()
	if s.items[p.item.want.ID] == p.item {
		delete(s.items, p.item.want.ID)
	}
	s.mu.Unlock()
	p.item.err = err
	close(p.item.ready)
}

func (p *partial) close() {
	if p.in != nil {
		p.in.Abort()
	}
	if p.item.archive != nil {
		p.item.archive.Close()
	}
}
