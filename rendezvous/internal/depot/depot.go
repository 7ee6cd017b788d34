// Package depot spreads workspaces over the nodes of a coordinator.
//
// The coordinator itself sends a workspace to the first nodes. To each later node, it names a node
// that has the workspace. Each source serves a few nodes at a time, and each node that has received
// the workspace is a further source. So the number of nodes with the workspace doubles with each
// transfer, and the coordinator's work does not grow with the number of nodes. The depot forgets a
// node when the node's stream ends. So the death of a node, or a change of coordinators, leaves
// nothing to correct.
package depot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// perSource is how many nodes get a workspace from one source at a time.
	perSource = 2
	// If the number of other sources is at least enough, the coordinator lets these sources serve
	// the nodes. It still serves a node that has failed at maxFailures sources, because that node
	// may not reach any other node.
	enough      = 2
	maxFailures = 2
	// absentLimit bounds the wait for any source of a workspace. A wait can help, because after a
	// change of coordinators, nodes that have the workspace take a moment to join.
	absentLimit = time.Minute
)

// Depot knows which node has which workspace.
type Depot struct {
	cache *workspace.Cache

	mu    sync.Mutex
	items map[string]*item
}

// New returns the depot of a coordinator that keeps workspaces in a directory. If dir is empty, the
// coordinator keeps none.
func New(dir string) *Depot {
	d := &Depot{items: map[string]*item{}}
	if dir != "" {
		d.cache = workspace.NewCache(dir)
	}
	return d
}

// item is a workspace that a job uses, or a node wants.
type item struct {
	id    string
	users int

	// loading is locked while Load or Keep looks for the archive or stores it. archive is nil if
	// this process does not have the archive.
	loading sync.Mutex
	archive *workspace.Archive

	// own is this process as a source; nil without the archive. free has, for each other source,
	// one entry for each node that the source could serve now. others counts the other sources.
	own    *Source
	free   []*Source
	others int
	// waiting are nodes that may get the workspace from any source. stranded are nodes that may get
	// it only from this process.
	waiting, stranded []*wait
}

// Source is where a node gets a workspace from.
type Source struct {
	// Addr is HOST:PORT; empty for this process.
	Addr string
	busy int
	gone bool
}

// wait is the wait of one node for a source.
type wait struct{ found chan *Source }

// Use makes the depot keep a workspace until Close.
type Use struct {
	depot *Depot
	*item
	once sync.Once
}

// Open begins a use. It does not access files.
func (d *Depot) Open(id string) *Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	it := d.items[id]
	if it == nil {
		it = &item{id: id}
		d.items[id] = it
	}
	it.users++
	return &Use{depot: d, item: it}
}

// Archives returns a use of each workspace whose archive the depot has open. The caller must close
// each use.
func (d *Depot) Archives() (all []*Use) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range d.items {
		if it.archive != nil {
			it.users++
			all = append(all, &Use{depot: d, item: it})
		}
	}
	return all
}

// Close ends a use. The cache may then remove the archive.
func (u *Use) Close() {
	u.once.Do(func() {
		d := u.depot
		d.mu.Lock()
		defer d.mu.Unlock()
		if u.users--; u.users > 0 {
			return
		}
		delete(d.items, u.id)
		if u.archive != nil {
			u.archive.Close()
		}
	})
}

// Load returns the archive if this process has it. Otherwise the error is fs.ErrNotExist.
func (u *Use) Load() (*workspace.Archive, error) {
	u.loading.Lock()
	defer u.loading.Unlock()
	u.depot.mu.Lock()
	a := u.archive
	u.depot.mu.Unlock()
	if a != nil {
		return a, nil
	}
	if u.depot.cache == nil {
		return nil, fs.ErrNotExist
	}
	a, err := u.depot.cache.Get(report.Workspace{ID: u.id})
	if err == nil {
		u.keep(a)
	}
	return a, err
}

// Receive begins to receive an archive. Keep ends the transfer.
func (u *Use) Receive(w report.Workspace) (*workspace.Incoming, error) {
	if u.depot.cache == nil {
		return nil, errors.New("this coordinator keeps no workspaces")
	}
	return u.depot.cache.Receive(w)
}

// Keep keeps an archive that has arrived.
func (u *Use) Keep(in *workspace.Incoming) error {
	a, err := in.Commit()
	if err != nil {
		return err
	}
	u.loading.Lock()
	defer u.loading.Unlock()
	u.keep(a)
	return nil
}

func (u *Use) keep(a *workspace.Archive) {
	u.depot.mu.Lock()
	defer u.depot.mu.Unlock()
	if u.archive != nil { // the archive has arrived twice
		a.Close()
		return
	}
	u.archive, u.own = a, &Source{}
	u.serve()
}

// Find waits for a source from which a node can get the workspace. failed is at how many sources
// the node has failed. The caller must return the source with Done.
func (u *Use) Find(ctx context.Context, failed int) (*Source, error) {
	if _, err := u.Load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	w := &wait{make(chan *Source, 1)}
	d := u.depot
	d.mu.Lock()
	if failed >= maxFailures && u.own != nil {
		u.stranded = append(u.stranded, w)
	} else {
		u.waiting = append(u.waiting, w)
	}
	u.serve()
	d.mu.Unlock()
	limit := time.NewTimer(absentLimit)
	defer limit.Stop()
	for {
		select {
		case s := <-w.found:
			return s, nil
		case <-ctx.Done():
			u.forget(w)
			return nil, ctx.Err()
		case <-limit.C:
			if u.absent() {
				u.forget(w)
				return nil, fmt.Errorf("workspace %.12s is neither with the coordinator nor on any node; submit the job again", u.id)
			}
			limit.Reset(absentLimit)
		}
	}
}

// absent reports whether no node has the workspace.
func (u *Use) absent() bool {
	u.depot.mu.Lock()
	defer u.depot.mu.Unlock()
	return u.own == nil && u.others == 0
}

// forget ends a wait. If the wait has just found a source, forget returns the source.
func (u *Use) forget(w *wait) {
	u.depot.mu.Lock()
	this := func(x *wait) bool { return x == w }
	u.waiting, u.stranded = slices.DeleteFunc(u.waiting, this), slices.DeleteFunc(u.stranded, this)
	u.depot.mu.Unlock()
	select {
	case s := <-w.found:
		u.Done(s, false)
	default:
	}
}

// Done returns a source. Only this process is used as a source again after it has failed.
func (u *Use) Done(s *Source, failed bool) {
	u.depot.mu.Lock()
	defer u.depot.mu.Unlock()
	if s.busy--; s != u.own {
		switch {
		case s.gone:
		case failed:
			u.remove(s)
		default:
			u.free = append(u.free, s)
		}
	}
	u.serve()
}

// Add adds a node as a source until the caller calls remove.
func (u *Use) Add(addr string) (remove func()) {
	u.depot.mu.Lock()
	defer u.depot.mu.Unlock()
	s := &Source{Addr: addr}
	u.others++
	for range perSource {
		u.free = append(u.free, s)
	}
	u.serve()
	return func() {
		u.depot.mu.Lock()
		defer u.depot.mu.Unlock()
		u.remove(s)
	}
}

// remove ends the use of a source. The method any skips the source's entries in free later.
func (u *Use) remove(s *Source) {
	if !s.gone {
		s.gone = true
		u.others--
	}
}

// serve gives sources to waiting nodes, in order.
func (it *item) serve() {
	it.stranded = it.assign(it.stranded, it.ours)
	it.waiting = it.assign(it.waiting, it.any)
}

// assign gives sources to the first waiting nodes, as long as choose returns a source. It returns
// the nodes that still wait.
func (it *item) assign(waiting []*wait, choose func() *Source) []*wait {
	for len(waiting) > 0 {
		s := choose()
		if s == nil {
			break
		}
		s.busy++
		waiting[0].found <- s
		waiting = waiting[1:]
	}
	return waiting
}

// ours returns this process as a source. It returns nil if this process is busy, or does not have
// the workspace.
func (it *item) ours() *Source {
	if it.own == nil || it.own.busy == perSource {
		return nil
	}
	return it.own
}

// any returns a source that is not busy; nil if there is none.
func (it *item) any() *Source {
	for len(it.free) > 0 {
		s := it.free[0]
		it.free = it.free[1:]
		if !s.gone {
			return s
		}
	}
	if it.others < enough {
		return it.ours()
	}
	return nil
}
