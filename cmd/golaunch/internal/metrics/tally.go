package metrics

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// tally adds up, from scrape to scrape, counters that start at 0 again with each attempt of a rank.
// A counter that is older than the tally counts only from the first scrape on. So if the exporter
// restarts, rate() sees a counter that was reset, and counts nothing twice.
type tally struct {
	began time.Time
	jobs  map[string]*sums
	// charges has the highest values so far of a cluster's charges, and the time from which these
	// count.
	charges sums
}

// sums are the counters of a job.
type sums struct {
	submitted time.Time
	// attempt is the newest attempt when the job was first seen. young is true if the job is
	// younger than the tally.
	attempt      int
	young        bool
	lines, bytes count
	steps        advance
	xids         count
	// gpus are the errors of each GPU. They are kept over attempts.
	gpus   map[string]*advance
	ranks  map[int]*counts
	floors map[string]float64
}

// counts are the counters of a rank over all attempts.
type counts struct {
	attempt, pid int
	lines, bytes count
}

// count is a counter that may restart at 0. The zero count has had no reading yet.
type count struct {
	was, sum float64
	seen     bool
}

// add adds a new reading and returns the increase. anew is true if the counter has restarted since
// the last reading.
func (c *count) add(now float64, anew bool) float64 {
	if math.IsNaN(now) {
		return 0
	}
	more := 0.0
	switch {
	case anew || c.seen && now < c.was:
		more = now
	case c.seen:
		more = now - c.was
	}
	c.was, c.seen, c.sum = now, true, c.sum+more
	return more
}

// value is the sum; NaN if nothing was seen.
func (c *count) value() float64 {
	if !c.seen {
		return math.NaN()
	}
	return c.sum
}

// advance sums progress that may be set back.
type advance struct{ count }

func (a *advance) add(now float64) float64 {
	if now < a.was {
		a.was = now
	}
	return a.count.add(now, false)
}

// take updates all jobs. It keeps jobs that a source without an answer may still have.
func (t *tally) take(all *seen) {
	if t.jobs == nil {
		t.jobs = map[string]*sums{}
	}
	if len(all.charges) > 0 && !t.charges.submitted.Equal(all.counted) {
		t.charges = sums{submitted: all.counted, floors: map[string]float64{}}
	}
	found := map[string]bool{}
	for _, j := range all.jobs {
		found[j.id] = true
		if t.began.IsZero() {
			t.began = j.at
		}
		if old := t.jobs[j.id]; old == nil || !old.submitted.Equal(j.Submitted) {
			t.jobs[j.id] = &sums{
				submitted: j.Submitted, attempt: j.Attempt, young: j.Submitted.After(t.began), ranks: map[int]*counts{},
				gpus: map[string]*advance{}, floors: map[string]float64{},
			}
		}
		t.jobs[j.id].take(j)
	}
	for id := range t.jobs {
		if !found[id] && !all.blind {
			delete(t.jobs, id)
		}
	}
}

func (s *sums) take(j *job) {
	s.steps.add(j.Progress.Step)
	for _, r := range j.mine {
		s.rank(r)
	}
}

// rank adds the counts of a rank since it was last seen.
func (s *sums) rank(r *view.Rank) {
	of, known := s.ranks[r.Rank]
	anew := known && (of.attempt != r.Attempt || of.pid != r.PID)
	if !known {
		of = &counts{}
		s.ranks[r.Rank] = of
		anew = s.young || r.Attempt > s.attempt
	}
	of.attempt, of.pid = r.Attempt, r.PID
	s.lines.more(of.lines.add(r.Now.Lines, anew), r.Now.Lines)
	s.bytes.more(of.bytes.add(r.Now.LogBytes, anew), r.Now.LogBytes)
	if r.GPU == "" {
		return
	}
	if s.gpus[r.GPU] == nil {
		s.gpus[r.GPU] = &advance{}
	}
	s.xids.more(s.gpus[r.GPU].add(r.Now.Xids), r.Now.Xids)
}

// more adds the increase n of one of several counters that are summed; now is its reading.
func (c *count) more(n, now float64) {
	c.sum, c.seen = c.sum+n, c.seen || !math.IsNaN(now)
}

// floor returns the highest value so far, since a counter must not fall when its value is corrected
// later.
func (s *sums) floor(of string, now float64) float64 {
	s.floors[of] = max(s.floors[of], now)
	return s.floors[of]
}

// lines are the output lines of a rank.
func (t *tally) lines(j *job, r *view.Rank) float64 {
	of := t.jobs[j.id].ranks[r.Rank]
	if of == nil {
		return math.NaN()
	}
	return of.lines.value()
}
