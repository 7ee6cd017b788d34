package samples

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxSamples bounds the samples of a series. budget bounds the numbers of a table to 48 MiB,
	// which shortens the series of many ranks.
	maxSamples = 600
	minSamples = 8
	budget     = 48 << 20 / (8 * int(Columns))
)

// Table has the newest samples of a node's subjects. It may be used by several goroutines.
type Table struct {
	mu   sync.Mutex
	rows map[Subject]*ring
}

// ring has the newest samples of a subject; next is the place of the next one.
type ring struct {
	State
	samples []Sample
	next    int
}

// Add adds a sample of a subject and replaces its state.
func (t *Table) Add(of Subject, state State, s Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[Subject]*ring{}
	}
	r := t.rows[of]
	if r == nil {
		r = &ring{}
		t.rows[of] = r
	}
	r.State = state
	r.add(s, t.room())
}

// room is how many samples a series may have.
func (t *Table) room() int { return min(maxSamples, max(minSamples, budget/len(t.rows))) }

func (r *ring) add(s Sample, room int) {
	if len(r.samples) > room { // the number of series has grown
		r.samples, r.next = slices.Clone(r.ordered()[len(r.samples)-room:]), 0
	}
	if len(r.samples) < room {
		r.samples, r.next = append(r.ordered(), s), 0
		return
	}
	r.samples[r.next] = s
	r.next = (r.next + 1) % len(r.samples)
}

// ordered are the samples, the oldest first.
func (r *ring) ordered() []Sample {
	if r.next == 0 {
		return r.samples
	}
	return slices.Concat(r.samples[r.next:], r.samples[:r.next])
}

// Forget drops the ranks of a job.
func (t *Table) Forget(job string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.rows, func(of Subject, _ *ring) bool { return of.Job == job && of != Node })
}

// Query selects from a table.
type Query struct {
	// Job selects the ranks of one job, unless it is empty.
	Job string
	// After drops samples up to a time of the node's clock, except the newest of each series.
	After time.Time
}

// Read returns copies of the selected series, the node's first, then by job and rank.
func (t *Table) Read(q Query) []Series {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Series
	for of, r := range t.rows {
		if q.Job == "" || of.Job == q.Job || of == Node {
			all = append(all, Series{of, r.State, r.after(q.After)})
		}
	}
	slices.SortFunc(all, func(a, b Series) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank)) })
	return all
}

// after copies the samples after a time, and at least the newest.
func (r *ring) after(t time.Time) []Sample {
	all := r.ordered()
	i, _ := slices.BinarySearchFunc(all, t, func(s Sample, t time.Time) int {
		if s.At.After(t) {
			return 1
		}
		return -1
	})
	return slices.Clone(all[min(i, len(all)-1):])
}
