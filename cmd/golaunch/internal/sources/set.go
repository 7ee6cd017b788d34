package sources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

// place is where jobs are looked for, with the coordinators that are known there. Jobs of this machine that have coordinators of their own
// come and go.
type Set struct {
	ctx   context.Context
	where Target
	// warn says what nobody asks for.
	warn func(error)

	mu      sync.Mutex
	sources map[string]view.Source
}

// newPlace connects to what is there, until ctx ends.
func NewSet(ctx context.Context, where Target, warn func(error)) (*Set, error) {
	sources, err := where.Connect(ctx)
	p := &Set{ctx: ctx, where: where, warn: warn, sources: map[string]view.Source{}}
	for at, source := range sources {
		p.add(at, source)
	}
	return p, err
}

// add takes a new source.
func (p *Set) add(at string, source view.Source) {
	source = Remember(p.ctx, at, source)
	if l, ok := source.(*LocalJob); ok {
		l.lost = func() { p.warn(VanishedError(at)) }
	}
	p.sources[at] = source
}

// remembering is a source as it is, but for a job of this machine with a coordinator of its own: what is known of that outlives it.
func Remember(ctx context.Context, at string, source view.Source) view.Source {
	client, ok := source.(*launcher.Client)
	if job, local := strings.CutPrefix(at, "job "); ok && local {
		return &LocalJob{Client: client, ctx: ctx, job: job, lost: func() {}}
	}
	return source
}

// vanished says of a source that it is gone, and nobody knows why.
func VanishedError(at string) error {
	return fmt.Errorf("the coordinator of %s is gone, and has not told of an end: golaunch_up is 0 for it until it is back, for an hour at most", at)
}

// missed is for how long metrics tell of a source that has vanished: long enough for an alert to be seen.
const VanishedFor = time.Hour

// now are the sources that are known.
func (p *Set) All() map[string]view.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sources)
}

// list has the sources that are known, in the order of where they are.
func (p *Set) List() (all []view.Source) {
	sources := p.All()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, sources[at])
	}
	return all
}

// close closes all of them.
func (p *Set) Close() { _ = Close(p.All()) } // they have answered

// maxPast bounds the jobs of this machine that are over and still known.
const maxPast = 20

// more finds jobs that have begun meanwhile, for a model, which closes what it has of them; here they stay.
func (p *Set) More(ctx context.Context, known func(at string) bool) map[string]view.Source {
	begun := p.where.More(ctx, func(at string) bool { return p.All()[at] != nil })
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
func (p *Set) forget() {
	var past []string
	ended := map[string]time.Time{}
	for at, source := range p.sources {
		if l, ok := source.(*LocalJob); ok && !l.since().IsZero() {
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

// states returns what a model knows, after the jobs whose coordinators have vanished. What it is called does not change as jobs come and go.
func (p *Set) States(m *view.Model) []*view.State {
	s := m.State()
	if p.where.Coordinator == "" {
		s.Source = "this machine"
	}
	if s.Trouble == "" && s.Since.IsZero() {
		s.Since = s.At // a machine without jobs is no trouble
	}
	return append(p.vanished(), s)
}

// vanished are the jobs of this machine whose coordinators have gone lately without telling how they ended.
func (p *Set) vanished() (all []*view.State) {
	sources := p.All()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if l, ok := sources[at].(*LocalJob); ok && !l.since().IsZero() && time.Since(l.since()) < VanishedFor && !l.HasResult() {
			all = append(all, &view.State{At: time.Now(), Source: at, Trouble: "its coordinator is gone"})
		}
	}
	return all
}
