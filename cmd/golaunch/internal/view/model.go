package view

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// Options are the options of a [Model].
type Options struct {
	// Job limits the model to one job and its nodes; empty for all.
	Job string
	// Every is the interval at which the model is brought up to date; a second when 0.
	Every time.Duration
	// History is the length of the past that is kept; ten minutes when 0.
	History time.Duration
	// More finds new sources; nil looks for none. Run closes them at its end. With More, a source
	// that answers [launcher.ErrNotThere] is forgotten.
	More func(ctx context.Context, known func(at string) bool) map[string]Source
}

// moreEvery is how often to look for new sources.
const moreEvery = 2 * time.Second

// Model keeps the newest [State]. It is safe for concurrent use.
type Model struct {
	opts    Options
	sources map[string]Source
	// began is when Run started.
	began time.Time

	mu    sync.Mutex
	parts map[string]*portion
	// changed is closed and replaced at each change.
	changed chan struct{}
}

// New returns a model of sources, which are keyed by address.
func New(sources map[string]Source, o Options) *Model {
	o.Every, o.History = cmp.Or(o.Every, time.Second), cmp.Or(o.History, 10*time.Minute)
	m := &Model{opts: o, sources: sources, parts: map[string]*portion{}, changed: make(chan struct{})}
	for at := range sources {
		m.parts[at] = newPortion()
	}
	return m
}

// Run keeps the model up to date until ctx ends. An error shows in the State, and Run tries again.
func (m *Model) Run(ctx context.Context) {
	var all sync.WaitGroup
	m.began = time.Now()
	for at, s := range m.sources {
		all.Go(func() { m.accompany(ctx, &all, at, s, m.over) })
	}
	m.find(ctx, &all)
	all.Wait()
}

// find looks for new sources until ctx ends. It forgets a source that no longer answers: its job is
// over.
func (m *Model) find(ctx context.Context, all *sync.WaitGroup) {
	if m.opts.More == nil {
		return
	}
	for {
		select {
		case <-time.After(moreEvery):
		case <-ctx.Done():
			return
		}
		for at, s := range m.opts.More(ctx, m.knows) {
			m.mu.Lock()
			m.parts[at] = newPortion()
			m.mu.Unlock()
			all.Go(func() {
				defer func() { _ = s.Close() }() // all its answers have arrived
				m.accompany(ctx, all, at, s, func(trouble error) bool { return trouble != nil })
			})
		}
	}
}

// over reports whether a source no longer knows its job. If one job was named, the source stays,
// and its error shows.
func (m *Model) over(trouble error) bool {
	return m.opts.More != nil && m.opts.Job == "" && errors.Is(trouble, launcher.ErrNotThere)
}

// accompany follows a source until ctx ends, or until gone returns true for the source's trouble:
// then the source is forgotten.
func (m *Model) accompany(ctx context.Context, all *sync.WaitGroup, at string, s Source, gone func(trouble error) bool) {
	lived, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() { m.retire(lived, cancel, at, gone) })
	var both sync.WaitGroup
	both.Go(func() { m.poll(lived, at, s) })
	both.Go(func() { m.listen(lived, at, s) })
	both.Wait()
	if ctx.Err() != nil {
		return
	}
	m.change(at, func(*portion) { delete(m.parts, at) })
}

func (m *Model) knows(at string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.parts[at]
	return known
}

// retire ends a source when gone returns true.
func (m *Model) retire(ctx context.Context, cancel func(), at string, gone func(trouble error) bool) {
	for {
		changed := m.Changed()
		m.mu.Lock()
		p := m.parts[at]
		ends := p != nil && gone(p.trouble)
		m.mu.Unlock()
		if ends {
			cancel()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Changed returns a channel that is closed at the next change.
func (m *Model) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Ready waits until every source was asked once. It fails if none answers.
func (m *Model) Ready(ctx context.Context) error {
	for {
		changed := m.Changed()
		asked, why := m.asked()
		if asked {
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (m *Model) asked() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, p := range m.parts {
		if p.asked.IsZero() {
			return false, nil
		}
		if p.trouble != nil {
			errs = append(errs, p.trouble)
		}
	}
	if len(errs) < len(m.parts) {
		return true, nil
	}
	return true, errors.Join(errs...)
}

// poll asks for the status periodically.
func (m *Model) poll(ctx context.Context, at string, s Source) {
	for {
		status, err := s.Query(ctx, report.Query{Job: m.opts.Job})
		if ctx.Err() != nil {
			return
		}
		m.change(at, func(p *portion) {
			p.asked, p.trouble = time.Now(), err
			if err != nil {
				return
			}
			p.status, p.answered = status, p.asked
			p.prune()
			p.judge(time.Now().Add(-m.opts.Every), m.began)
		})
		select {
		case <-time.After(m.opts.Every):
		case <-ctx.Done():
			return
		}
	}
}

// listen takes samples; when the stream ends it asks again.
func (m *Model) listen(ctx context.Context, at string, s Source) {
	since := m.opts.History
	for ctx.Err() == nil {
		began := time.Now()
		for n, err := range s.Samples(ctx, launcher.SampleQuery{Job: m.opts.Job, Since: since, Every: m.opts.Every}) {
			if err != nil {
				break // poll reports the error
			}
			m.change(at, func(p *portion) { p.take(n, m.opts.History) })
		}
		since = min(m.opts.History, time.Since(began)+2*m.opts.Every)
		select {
		case <-time.After(m.opts.Every):
		case <-ctx.Done():
		}
	}
}

func (m *Model) change(at string, do func(*portion)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.parts[at]; p != nil {
		do(p)
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// State returns the newest state.
func (m *Model) State() *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &State{At: time.Now()}
	for i, at := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[at]
		s.Source = join(s.Source, at, ", ")
		if p.trouble != nil {
			s.Trouble = join(s.Trouble, p.trouble.Error(), "; ")
		}
		if i == 0 || p.answered.Before(s.Answered) {
			s.Answered = p.answered
		}
		s.Coordinators, s.Silent = append(s.Coordinators, p.status.Coordinators...), append(s.Silent, p.status.Silent...)
		s.Requested, s.Blocked = append(s.Requested, p.status.Requested...), cmp.Or(s.Blocked, p.status.Blocked)
		s.Version, s.Since = cmp.Or(s.Version, p.status.Version), p.status.Since
		if len(p.status.Charges) > 0 {
			s.Counted, s.Charges = p.status.Counted, append(s.Charges, p.status.Charges...)
		}
		s.add(p)
	}
	slices.SortStableFunc(s.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(s.Jobs, func(a, b *Job) int { return a.Submitted.Compare(b.Submitted) })
	return s
}

func (s *State) add(p *portion) {
	for _, n := range p.status.Nodes {
		node := &Node{Now: report.Unmeasured()}
		if measured := p.nodes[n.Name]; measured != nil {
			*node = *measured
		}
		node.NodeStatus = n
		s.Nodes = append(s.Nodes, node)
	}
	ranks := p.ranksByJob()
	for _, j := range p.status.Jobs {
		mine := ranks[j.ID]
		slow, judged := p.slow[j.ID]
		if !judged {
			slow.Ratio = math.NaN()
		}
		s.Jobs = append(s.Jobs, &Job{JobStatus: j, Ranks: mine, Progress: ProgressOf(mine, s.At), Slow: slow})
	}
}

// ProgressOf returns the progress that the ranks of a job report.
func ProgressOf(ranks []*Rank, now time.Time) report.Progress {
	var running []report.Usage
	for _, r := range ranks {
		if r.Exit == nil {
			running = append(running, r.Now)
		}
	}
	return report.ProgressOf(running, now)
}

func join(a, b, by string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + by + b
}
