// Package provision makes the nodes of a provider match the requested ones. A [Worker] creates
// missing nodes, deletes nodes that were given back, and reports what the provider says.
package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Provider has the methods of rendezvous.Provider.
type Provider interface {
	Create(ctx context.Context, tags []string) error
	List(ctx context.Context) (states map[string]string, err error)
	Delete(ctx context.Context, tags []string) error
}

// Deliverer has the methods of rendezvous.Deliverer.
type Deliverer interface {
	Deliver(ctx context.Context, tags []string) (states, failed map[string]string)
}

// Wanted is a node that a provider should have or, with Delete, should not have. The worker ignores
// nodes that are not wanted, even if they were wanted earlier.
type Wanted struct {
	Tag    string
	Delete bool
	// Requested is when the node was requested, perhaps by another coordinator.
	Requested time.Time
}

// Report is the result of a worker's round.
type Report struct {
	// States are the provider's descriptions of wanted nodes, by tag.
	States map[string]string
	// Gone are the tags of nodes that the provider does not have or cannot use, each with the
	// reason.
	Gone map[string]string
	// Err says why the provider fails at the moment. It is nil if all went well.
	Err error
}

const (
	// pollEvery is how often the worker asks a provider that still has something to do. No event
	// reports the end of that work.
	pollEvery = 5 * time.Second
	// settleTime is how long the provider's list may lack a node after the node was created.
	settleTime = 30 * time.Second
	// maxBatch bounds the tags of a call.
	maxBatch = 100
)

// Worker makes the nodes of a provider match the wanted ones, in a goroutine of its own.
type Worker struct {
	provider Provider
	limit    time.Duration
	report   func(Report)
	wake     chan struct{}

	mu   sync.Mutex
	want []Wanted

	// began is when the worker was made.
	began time.Time
	// created and deleted have the time at which each tag was created or deleted. Only the
	// goroutine of Run uses them.
	created, deleted map[string]time.Time
}

// New returns a worker whose calls take at most limit each. report is called in the goroutine of
// Run.
func New(p Provider, limit time.Duration, report func(Report)) *Worker {
	return &Worker{
		provider: p, began: time.Now(), limit: limit, report: report, wake: make(chan struct{}, 1),
		created: map[string]time.Time{}, deleted: map[string]time.Time{},
	}
}

// Want replaces what is wanted. It does not wait.
func (w *Worker) Want(all []Wanted) {
	w.mu.Lock()
	same := slices.Equal(w.want, all)
	w.want = all
	w.mu.Unlock()
	if same {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // the worker is awake
	}
}

func (w *Worker) wanted() []Wanted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want
}

// Run works until ctx ends. It does nothing while nothing is wanted.
func (w *Worker) Run(ctx context.Context) {
	poll := time.NewTimer(pollEvery)
	defer poll.Stop()
	for {
		var again <-chan time.Time
		if len(w.wanted()) > 0 {
			poll.Reset(pollEvery)
			again = poll.C
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-again:
		}
		if want := w.wanted(); len(want) > 0 {
			if r := w.work(ctx, want); ctx.Err() == nil {
				w.report(r)
			}
		}
	}
}

// work makes one round: it finds out what the provider has, creates nodes, and deletes nodes.
func (w *Worker) work(ctx context.Context, want []Wanted) Report {
	w.forget(want)
	r := Report{States: map[string]string{}, Gone: map[string]string{}}
	has, err := w.list(ctx)
	if err != nil {
		r.Err = err
		return r
	}
	var create, remove, here []string
	for _, x := range want {
		state, there := has[x.Tag]
		_, created := w.created[x.Tag]
		_, deleted := w.deleted[x.Tag]
		switch {
		case there:
			r.States[x.Tag] = state
			if x.Delete {
				remove = append(remove, x.Tag)
				continue
			}
			here = append(here, x.Tag)
			if !created {
				w.created[x.Tag] = time.Now()
			}
		case x.Delete && deleted && w.settled(x):
			r.Gone[x.Tag] = "it was deleted"
		case x.Delete:
			remove = append(remove, x.Tag) // the provider may list the node later
		case !created:
			create = append(create, x.Tag)
		case w.settled(x):
			r.Gone[x.Tag] = "the provider does not have it any more"
		}
	}
	r.Err = errors.Join(w.create(ctx, create, &r), w.remove(ctx, remove))
	w.deliver(ctx, here, &r)
	return r
}

// settled reports whether a list has had time to contain a created node.
func (w *Worker) settled(x Wanted) bool {
	at := x.Requested
	if at.After(time.Now()) { // the clock was set back
		at = w.began
	}
	if created, ours := w.created[x.Tag]; ours && created.After(at) {
		at = created
	}
	return time.Since(at) > settleTime
}

// forget drops the notes about tags that are not wanted any more.
func (w *Worker) forget(want []Wanted) {
	known := map[string]bool{}
	for _, x := range want {
		known[x.Tag] = true
	}
	for _, noted := range []map[string]time.Time{w.created, w.deleted} {
		maps.DeleteFunc(noted, func(tag string, _ time.Time) bool { return !known[tag] })
	}
}

func (w *Worker) list(ctx context.Context) (map[string]string, error) {
	ctx, cancel := w.limited(ctx)
	defer cancel()
	has, err := w.provider.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the nodes: %w", w.late(ctx, err))
	}
	return has, nil
}

// create creates nodes. After a failed call it reports the nodes that the provider does not have as
// gone. The failure is the reason.
func (w *Worker) create(ctx context.Context, tags []string, r *Report) error {
	for batch := range slices.Chunk(tags, maxBatch) {
		limited, cancel := w.limited(ctx)
		err := w.provider.Create(limited, batch)
		err = w.late(limited, err)
		cancel()
		for _, tag := range batch {
			w.created[tag] = time.Now()
		}
		if err == nil {
			continue
		}
		has, lost := w.list(ctx)
		if lost != nil { // the result of the call is unknown
			return errors.Join(err, lost)
		}
		for _, tag := range batch {
			if _, there := has[tag]; !there {
				r.Gone[tag] = err.Error()
			}
		}
	}
	return nil
}

// deliver starts agents on nodes that exist. It reports nodes on which that fails as gone.
func (w *Worker) deliver(ctx context.Context, tags []string, r *Report) {
	d, delivers := w.provider.(Deliverer)
	if !delivers {
		return
	}
	for batch := range slices.Chunk(tags, maxBatch) {
		limited, cancel := w.limited(ctx)
		states, failed := d.Deliver(limited, batch)
		cancel()
		maps.Copy(r.States, states)
		maps.Copy(r.Gone, failed)
	}
}

func (w *Worker) remove(ctx context.Context, tags []string) error {
	for batch := range slices.Chunk(tags, maxBatch) {
		limited, cancel := w.limited(ctx)
		err := w.provider.Delete(limited, batch)
		err = w.late(limited, err)
		cancel()
		if err != nil {
			return fmt.Errorf("cannot delete %s: %w", batch[0], err)
		}
		for _, tag := range batch {
			w.deleted[tag] = time.Now()
		}
	}
	return nil
}

func (w *Worker) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.limit)
}

// late returns an error that says that the call took too long, if it did. Otherwise it returns err.
func (w *Worker) late(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the provider did not answer within %v", w.limit)
	}
	return err
}
