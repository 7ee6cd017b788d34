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

// Set has the known coordinators of a target. They change, since each job of this machine may have
// its own coordinator.
type Set struct {
	ctx   context.Context
	where Target
	// warn prints warnings.
	warn func(error)

	mu      sync.Mutex
	sources map[string]view.Source
}

// NewSet connects to the coordinators of a target, until ctx ends.
func NewSet(ctx context.Context, where Target, warn func(error)) (*Set, error) {
	sources, err := where.Connect(ctx)
	p := &Set{ctx: ctx, where: where, warn: warn, sources: map[string]view.Source{}}
	for at, source := range sources {
		p.add(at, source)
	}
	return p, err
}

// add adds a source.
func (p *Set) add(at string, source view.Source) {
	source = Remember(p.ctx, at, source)
	if l, ok := source.(*LocalJob); ok {
		l.lost = func() { p.warn(VanishedError(at)) }
	}
	p.sources[at] = source
}

// Remember wraps the source of a job with its own coordinator on this machine in a [LocalJob]. It
// returns other sources as they are.
func Remember(ctx context.Context, at string, source view.Source) view.Source {
	client, ok := source.(*launcher.Client)
	if job, local := strings.CutPrefix(at, localPrefix); ok && local {
		return &LocalJob{Client: client, ctx: ctx, job: job, lost: func() {}}
	}
	return source
}

// VanishedError is the warning that a source has vanished for an unknown reason.
func VanishedError(at string) error {
	return fmt.Errorf("the coordinator of %s is gone and did not report an end: golaunch_up is 0 for it until it is back, for at most an hour", at)
}

// VanishedFor is how long metrics report a source that has vanished: long enough for an alert to
// fire.
const VanishedFor = time.Hour

// All returns the known sources by address.
func (p *Set) All() map[string]view.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sources)
}

// List returns the known sources in the order of their addresses.
func (p *Set) List() (all []view.Source) {
	sources := p.All()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, sources[at])
	}
	return all
}

// Close closes all sources.
func (p *Set) Close() { _ = Close(p.All()) } // the sources have answered

// maxPast bounds the finished jobs of this machine that are kept.
const maxPast = 20

// More finds jobs that have begun since the last call, for a model. The model may close these
// sources; the Set keeps them open.
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

// forget drops the jobs that ended first.
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
		_ = p.sources[at].Close() // the source does not answer any more
		delete(p.sources, at)
	}
}

// kept is a source that its user cannot close.
type kept struct{ view.Source }

// Close does nothing.
func (kept) Close() error { return nil }

// States returns first the states of jobs whose coordinators have vanished, and then the state of a
// model. The name of the model's source stays the same while jobs begin and end.
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

// vanished returns a state for each job of this machine whose coordinator has lately ended without
// a result.
func (p *Set) vanished() (all []*view.State) {
	sources := p.All()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if l, ok := sources[at].(*LocalJob); ok && !l.since().IsZero() && time.Since(l.since()) < VanishedFor && !l.HasResult() {
			all = append(all, &view.State{At: time.Now(), Source: at, Trouble: "its coordinator is gone"})
		}
	}
	return all
}
