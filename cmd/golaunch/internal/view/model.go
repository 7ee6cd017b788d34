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

// Options say what a [Model] keeps.
type Options struct {
	// Job limits the model to one job and its nodes; empty for all.
	Job string
	// Every is how often the model is brought up to date; a second when 0.
	Every time.Duration
	// History is how much of the past is kept; ten minutes when 0.
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

// portion is what one source has reported.
type portion struct {
	status report.Status
	// asked is when the source was asked last, and answered when it last answered.
	asked, answered time.Time
	trouble         error
	nodes           map[string]*Node
	ranks           map[subject]*Rank
	// clocks says how far the clock of each node is behind this one.
	clocks map[string]time.Duration
	// judges watch the jobs for stragglers, and slow is what they have found.
	judges map[string]*judge
	slow   map[string]Slow
}

type subject struct {
	job  string
	rank int
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

func newPortion() *portion {
	return &portion{
		nodes: map[string]*Node{}, ranks: map[subject]*Rank{}, clocks: map[string]time.Duration{}, judges: map[string]*judge{},
		slow: map[string]Slow{},
	}
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

func (m *Model) follow(ctx context.Context, at string, s Source) {
	var both sync.WaitGroup
	both.Go(func() { m.poll(ctx, at, s) })
	both.Go(func() { m.listen(ctx, at, s) })
	both.Wait()
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
	m.follow(lived, at, s)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, at)
	close(m.changed)
	m.changed = make(chan struct{})
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
			m.prune(p)
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

// take adds the samples of a node. It replaces nodes and ranks, since readers may hold the old
// ones.
func (p *portion) take(n launcher.NodeSamples, history time.Duration) {
	node := &Node{Now: report.Unmeasured()}
	if old := p.nodes[n.Node]; old != nil {
		*node = *old
	}
	p.nodes[n.Node] = node
	if n.Missing != "" {
		node.Missing = n.Missing
		return
	}
	now := time.Now()
	behind := now.Sub(n.Now)
	if old, known := p.clocks[n.Node]; known {
		behind = min(behind, old+time.Millisecond) // the answer with the least delay is the most exact; clocks drift
	}
	p.clocks[n.Node] = behind
	node.Heard, node.Missing = now, ""
	for _, s := range n.Series {
		if s.Rank < 0 {
			node.Samples = extend(node.Samples, s.Samples, behind, now.Add(-history))
			if len(node.Samples) > 0 {
				node.Now = node.Samples[len(node.Samples)-1].Usage
			}
			continue
		}
		p.takeRank(n.Node, s, behind, now, history)
	}
}

func (p *portion) takeRank(node string, s report.Series, behind time.Duration, now time.Time, history time.Duration) {
	id := subject{s.Job, s.Rank}
	rank := &Rank{}
	if old := p.ranks[id]; old != nil {
		*rank = *old
	}
	if len(s.Samples) > 0 {
		newest := s.Samples[len(s.Samples)-1]
		if rank.Node != "" && rank.Node != node && !newest.At.Add(behind).After(rank.last()) {
			return // the sample is of an older attempt, which ran elsewhere
		}
	}
	rank.Job, rank.Rank, rank.Node, rank.LocalRank, rank.PID, rank.GPU = s.Job, s.Rank, node, s.LocalRank, s.PID, s.GPU
	rank.Exit, rank.Does, rank.Heard = s.Exit, s.Does, now
	rank.Samples = extend(rank.Samples, s.Samples, behind, now.Add(-history))
	if n := len(rank.Samples); n > 0 {
		rank.Now, rank.Attempt = rank.Samples[n-1].Usage, rank.Samples[n-1].Attempt
	}
	p.ranks[id] = rank
}

func (r *Rank) last() time.Time {
	if len(r.Samples) == 0 {
		return time.Time{}
	}
	return r.Samples[len(r.Samples)-1].At
}

// sameSample is the greatest difference between two times of one sample, since the estimate of a
// clock moves.
const sameSample = 200 * time.Millisecond

// extend appends newer samples, converted to this machine's time, and drops those before from. It
// does not change what readers may hold.
func extend(old, samples []report.Sample, behind time.Duration, from time.Time) []report.Sample {
	last := time.Time{}
	if len(old) > 0 {
		last = old[len(old)-1].At.Add(sameSample)
	}
	for _, s := range samples {
		if s.At = s.At.Add(behind); s.At.After(last) {
			old = append(old, s)
		}
	}
	i, _ := slices.BinarySearchFunc(old, from, func(s report.Sample, t time.Time) int { return s.At.Compare(t) })
	return old[min(i, max(0, len(old)-1)):]
}

// prune drops nodes and jobs that the source no longer has.
func (m *Model) prune(p *portion) {
	jobs, nodes := map[string]bool{}, map[string]bool{}
	for _, j := range p.status.Jobs {
		jobs[j.ID] = true
	}
	for _, n := range p.status.Nodes {
		nodes[n.Name] = true
	}
	maps.DeleteFunc(p.ranks, func(of subject, _ *Rank) bool { return !jobs[of.job] })
	maps.DeleteFunc(p.nodes, func(name string, _ *Node) bool { return !nodes[name] })
	maps.DeleteFunc(p.clocks, func(name string, _ time.Duration) bool { return !nodes[name] })
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
	slices.SortStableFunc(s.Nodes, func(a, b *Node) int { return compare(a.Name, b.Name) })
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
	ranks := map[string][]*Rank{}
	for of, r := range p.ranks {
		ranks[of.job] = append(ranks[of.job], r)
	}
	for _, j := range p.status.Jobs {
		mine := ranks[j.ID]
		slices.SortFunc(mine, byRank)
		slow, judged := p.slow[j.ID]
		if !judged {
			slow.Ratio = math.NaN()
		}
		s.Jobs = append(s.Jobs, &Job{JobStatus: j, Ranks: mine, Progress: ProgressOf(mine, s.At), Slow: slow})
	}
}

func byRank(a, b *Rank) int { return cmp.Compare(a.Rank, b.Rank) }

// judge looks for stragglers in each running job. It takes samples up to until, by which time all
// nodes have reported, and from when the model began: earlier samples are sparse, since no client
// asked for them.
func (p *portion) judge(until, began time.Time) {
	ranks := map[string][]*Rank{}
	for of, r := range p.ranks {
		ranks[of.job] = append(ranks[of.job], r)
	}
	for _, j := range p.status.Jobs {
		mine := ranks[j.ID]
		if j.Phase != "running" || len(mine) == 0 {
			delete(p.judges, j.ID)
			delete(p.slow, j.ID)
			continue
		}
		slices.SortFunc(mine, byRank)
		if p.judges[j.ID] == nil {
			p.judges[j.ID] = &judge{fed: began}
		}
		p.slow[j.ID] = p.judges[j.ID].consider(j.Ranks, mine, until, time.Second)
	}
	maps.DeleteFunc(p.judges, func(id string, _ *judge) bool {
		return !slices.ContainsFunc(p.status.Jobs, func(j report.JobStatus) bool { return j.ID == id })
	})
}

// ProgressOf is the progress that the ranks of a job report.
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

func compare(a, b string) int { return cmp.Compare(a, b) }
