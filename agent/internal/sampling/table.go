package sampling

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// maxSamples bounds the samples of a series. budget bounds the values of a table to 48 MiB.
	// With many ranks, each series is therefore shorter.
	maxSamples = 600
	minSamples = 8
	budget     = 48 << 20 / int(unsafe.Sizeof(report.Usage{}))
)

// table has the newest samples of a node and its ranks. New samples overwrite the oldest. Several
// goroutines may use a table.
type table struct {
	mu   sync.Mutex
	rows map[subject]*ring
}

// subject is what a series is about: a rank of a job, or nodeItself.
type subject struct {
	job  string
	rank int
}

var nodeItself = subject{rank: -1}

// ring has the newest samples of a series. next is the index of the next sample.
type ring struct {
	series  report.Series
	samples []report.Sample
	next    int
}

// add adds a sample to a series. series replaces what the table knows about the rank.
func (t *table) add(series report.Series, s report.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[subject]*ring{}
	}
	of := subject{series.Job, series.Rank}
	r := t.rows[of]
	if r == nil {
		r = &ring{}
		t.rows[of] = r
	}
	r.series = series
	r.add(s, t.room())
}

// room returns how many samples a series may have.
func (t *table) room() int { return min(maxSamples, max(minSamples, budget/len(t.rows))) }

func (r *ring) add(s report.Sample, room int) {
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

// ordered returns the samples, the oldest first.
func (r *ring) ordered() []report.Sample {
	if r.next == 0 {
		return r.samples
	}
	return slices.Concat(r.samples[r.next:], r.samples[:r.next])
}

// forget drops the ranks of a job.
func (t *table) forget(job string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.rows, func(of subject, _ *ring) bool { return of.job == job && of != nodeItself })
}

// read returns copies of the series of a job, or of all jobs if job is empty: first the node's
// series, then the others by job and rank. It omits samples up to a time of the node's clock,
// except the newest of each series.
func (t *table) read(job string, after time.Time) []report.Series {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []report.Series
	for of, r := range t.rows {
		if job == "" || of.job == job || of == nodeItself {
			found := r.series
			found.Samples = r.after(after)
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b report.Series) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank)) })
	return all
}

// after copies the samples after a time, and at least the newest.
func (r *ring) after(t time.Time) []report.Sample {
	all := r.ordered()
	i, _ := slices.BinarySearchFunc(all, t, func(s report.Sample, t time.Time) int {
		if s.At.After(t) {
			return 1
		}
		return -1
	})
	return slices.Clone(all[min(i, len(all)-1):])
}
