package workspaces

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

// Use is a job's use of a workspace, until Close.
type Use struct {
	store  *Store
	want   report.Workspace
	rights *safefile.Rights
	dir    *workspace.Directory
	keep   func(lock *os.File)
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// item is nil after a failure.
	item *item
	// newest is the try that runs, or the last one.
	newest *try
	all    sync.WaitGroup
}

// Former is what an earlier agent has left of a job's workspace, and how to leave it to the next
// agent.
type Former struct {
	// Dir is the earlier agent's directory, in which ranks may run, and Lock is its lock. They are
	// empty and nil if there is no such directory.
	Dir  string
	Lock *os.File
	// Keep is called with the lock of a new directory before the directory is used. It is nil if no
	// later agent will come.
	Keep func(lock *os.File)
}

// try is an attempt to make the directory. err is valid once done is closed.
type try struct {
	done chan struct{}
	err  error
}

// Open begins to make a directory with a workspace for a job, with the rights of its ranks' user.
// within are the ports that the job permits.
func (s *Store) Open(job string, w report.Workspace, r *safefile.Rights, within ports.Range, former Former) *Use {
	s.mu.Lock()
	s.within = within
	s.mu.Unlock()
	u := &Use{store: s, want: w, rights: r, keep: former.Keep}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	if former.Dir == "" {
		u.dir = s.Cache.NewDirectory(job)
	} else if dir, err := s.Cache.Resume(former.Dir, former.Lock); err == nil {
		u.dir, u.newest = dir, &try{done: make(chan struct{})}
		close(u.newest.done)
		u.item = s.take(w)
		return u
	} else {
		u.dir = dir
	}
	u.begin()
	return u
}

// Dir returns the directory.
func (u *Use) Dir() string { return u.dir.Path }

// begin begins a try, unless one runs or has succeeded.
func (u *Use) begin() *try {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.newest; t != nil {
		select {
		case <-t.done:
			if t.err == nil {
				return t
			}
		default:
			return t
		}
	}
	t := &try{done: make(chan struct{})}
	u.newest = t
	if u.item == nil {
		u.item = u.store.take(u.want)
	}
	it := u.item
	u.all.Go(func() {
		defer close(t.done)
		if t.err = u.make(it); t.err != nil {
			u.mu.Lock()
			u.item = nil
			u.mu.Unlock()
			u.store.release(it)
		}
	})
	return t
}

func (u *Use) make(it *item) error {
	select {
	case <-it.ready:
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
	if it.err != nil {
		return it.err
	}
	err := u.dir.Make(it.archive, u.rights)
	if err == nil && u.keep != nil {
		u.keep(u.dir.Lock())
	}
	return err
}

// Await waits until the directory is made. After a failure it tries again.
func (u *Use) Await(ctx context.Context) error {
	t := u.begin()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Progress says how much of the workspace has arrived, for people.
func (u *Use) Progress() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	came := u.want.Bytes
	if u.item != nil && u.item.came.Load() < came {
		came = u.item.came.Load()
	}
	return fmt.Sprintf("%s of %s", workspace.Size(came), workspace.Size(u.want.Bytes))
}

// Close removes the directory. No process may use it any more.
func (u *Use) Close() error {
	u.cancel()
	u.all.Wait()
	if u.item != nil {
		u.store.release(u.item)
	}
	return u.dir.Remove()
}
