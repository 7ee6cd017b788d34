package samples

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxSamples bounds those of a series, and budget the numbers of a whole table: 48 MiB, which bounds the series of many ranks further.
	maxSamples = 600
	minSamples = 8
	budget     = 48 << 20 / (8 * int(Columns))
)

// Table has the newest samples of the subjects of a node. It may be used by several goroutines.
type Table struct {
	mu   sync.Mutex
	rows map[Subject]*ring
}

// ring has the newest samples of a subject; next is where the following one goes.
type ring struct {
	State
	samples []Sample
	next    int
}

// Add takes the next sample of a subject, whose state is as of now.
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
	if len(r.samples) > room { // there are more series by now
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

// Forget drops what is known of the ranks of a job.
func (t *Table) Forget(job string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.rows, func(of Subject, _ *ring) bool { return of.Job == job && of != Node })
}

// Query chooses of a table.
type Query struct {
	// Job leaves out the ranks of other jobs, unless it is empty.
	Job string
	// After leaves out the samples up to a time of the node's clock, but for the newest of each series.
	After time.Time
}

// Read returns copies of the series that were chosen, the node's first, then by job and rank.
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
