package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

// place is where jobs are looked for, with the coordinators that are known there. Jobs of this machine that have coordinators of their own
// come and go.
type place struct {
	ctx   context.Context
	where view.Where
	// warn says what nobody asks for.
	warn func(error)

	mu      sync.Mutex
	sources map[string]view.Source
}

// newPlace connects to what is there, until ctx ends.
func newPlace(ctx context.Context, where view.Where, warn func(error)) (*place, error) {
	sources, err := where.Connect(ctx)
	p := &place{ctx: ctx, where: where, warn: warn, sources: map[string]view.Source{}}
	for at, source := range sources {
		p.add(at, source)
	}
	return p, err
}

// place is as of newPlace. Without a coordinator that was named there may be nothing yet.
func (o *dashboardOptions) place(ctx context.Context, io *cli.Console) (*place, error) {
	p, err := newPlace(ctx, o.Where, io.Warn)
	if errors.Is(err, launcher.ErrNoCoordinator) && o.Coordinator == "" {
		io.Say("no job of yours runs on this machine; the page will show those that begin here. --coordinator HOST:PORT is for those of a cluster")
		err = nil
	}
	return p, err
}

// add takes a new source.
func (p *place) add(at string, source view.Source) {
	source = remembering(p.ctx, at, source)
	if l, ok := source.(*localJob); ok {
		l.lost = func() { p.warn(vanished(at)) }
	}
	p.sources[at] = source
}

// remembering is a source as it is, but for a job of this machine with a coordinator of its own: what is known of that outlives it.
func remembering(ctx context.Context, at string, source view.Source) view.Source {
	client, ok := source.(*launcher.Client)
	if job, local := strings.CutPrefix(at, "job "); ok && local {
		return &localJob{Client: client, ctx: ctx, job: job, lost: func() {}}
	}
	return source
}

// vanished says of a source that it is gone, and nobody knows why.
func vanished(at string) error {
	return fmt.Errorf("the coordinator of %s is gone, and has not told of an end: golaunch_up is 0 for it until it is back, for an hour at most", at)
}

// missed is for how long metrics tell of a source that has vanished: long enough for an alert to be seen.
const missed = time.Hour

// now are the sources that are known.
func (p *place) now() map[string]view.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sources)
}

// close closes all of them.
func (p *place) close() { _ = view.Close(p.now()) } // they have answered

// maxPast bounds the jobs of this machine that are over and still known.
const maxPast = 20

// more finds jobs that have begun meanwhile, for a model, which closes what it has of them; here they stay.
func (p *place) more(ctx context.Context, known func(at string) bool) map[string]view.Source {
	begun := p.where.More(ctx, func(at string) bool { return p.now()[at] != nil })
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, source := range begun {
		p.add(at, source)
	}
	p.forget()
	found := map[string]view.Source{}
	for at, source := range p.sources {
		if !known(at) {
			found[at] = kept{source}
		}
	}
	return found
}

// forget lets go of the jobs that ended first.
func (p *place) forget() {
	var past []string
	ended := map[string]time.Time{}
	for at, source := range p.sources {
		if l, ok := source.(*localJob); ok && !l.since().IsZero() {
			past, ended[at] = append(past, at), l.since()
		}
	}
	slices.SortFunc(past, func(a, b string) int { return ended[a].Compare(ended[b]) })
	for _, at := range past[:max(0, len(past)-maxPast)] {
		_ = p.sources[at].Close() // it answers no more
		delete(p.sources, at)
	}
}

// kept is a source that whoever has it may not close.
type kept struct{ view.Source }

// Close leaves it as it is.
func (kept) Close() error { return nil }

// metrics are those of all that is known. Jobs that come and go do not change what their source is called.
func (p *place) metrics(m *view.Model, level metrics.Level) http.Handler {
	c := &metrics.Collector{Level: level, States: func() []*view.State {
		s := m.State()
		if p.where.Coordinator == "" {
			s.Source = "this machine"
		}
		if s.Trouble == "" && s.Since.IsZero() {
			s.Since = s.At // a machine without jobs is no trouble
		}
		return append(p.vanished(), s)
	}}
	return c.Handler()
}

// vanished are the jobs of this machine whose coordinators have gone lately without telling how they ended.
func (p *place) vanished() (all []*view.State) {
	sources := p.now()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if l, ok := sources[at].(*localJob); ok && !l.since().IsZero() && time.Since(l.since()) < missed && !l.told() {
			all = append(all, &view.State{At: time.Now(), Source: at, Trouble: "its coordinator is gone"})
		}
	}
	return all
}
