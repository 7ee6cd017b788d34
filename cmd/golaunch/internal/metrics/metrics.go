// Package metrics exports a cluster and its jobs to Prometheus.
//
// A [Collector] turns the newest [view.State] into metrics at each scrape. By default ([Level]) no
// metric is about a single rank, process or attempt, so each job has only a few dozen series.
// Unknown values are absent, never 0: if no coordinator answers, golaunch_up is 0, the time of the
// last answer stays, and soon all jobs are gone.
package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Level is how detailed the metrics are.
type Level string

// Each level includes the levels before it.
const (
	// Jobs has a few dozen series for each job, and some series for the cluster.
	Jobs Level = "job"
	// Nodes has some twenty series for each node.
	Nodes Level = "node"
	// Ranks has some ten series for each running rank.
	Ranks Level = "rank"
)

// Levels are all levels, the least first.
var Levels = []Level{Jobs, Nodes, Ranks}

// ParseLevel reads a level.
func ParseLevel(text string) (Level, error) {
	for _, l := range Levels {
		if text == string(l) {
			return l, nil
		}
	}
	return "", fmt.Errorf("%q: job, node or rank", text)
}

// Limits of the metrics.
const (
	// MaxOver bounds the finished jobs; the newest are shown. MaxOpen bounds the other jobs; the
	// oldest are shown.
	MaxOver, MaxOpen = 20, 2000
	// Stale is how long an old value counts as current. After this time, a rank counts as silent,
	// and a source that does not answer is omitted.
	Stale = 30 * time.Second
)

// Collector shows the newest states as metrics. Its fields are set before its first use.
type Collector struct {
	// States returns the newest state of each source. It is called at each scrape.
	States func() []*view.State
	Level  Level
	// Once is true if there is no second scrape. Counters that the Collector sums from one scrape
	// to the next are then left out.
	Once bool

	mu    sync.Mutex
	tally tally
	// told is when each source last answered.
	told map[string]time.Time
}

// Write writes the metrics in Prometheus' text format.
func (c *Collector) Write(w io.Writer) error { return c.collect().write(w) }

// WriteFile replaces a file for node-exporter's textfile collector, which sees the old or the new
// file, never a part. All users may read it.
func (c *Collector) WriteFile(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	err = errors.Join(c.Write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// collect returns the metrics of the newest states.
func (c *Collector) collect() sheet {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := sheet{}
	seen := s.sources(c.look())
	all := gather(seen)
	c.tally.take(all)
	s.cluster(all)
	s.charges(all, &c.tally)
	for _, j := range all.jobs {
		s.job(j)
		s.live(j)
		s.sums(j, &c.tally, c.Once)
	}
	if c.Level != Jobs {
		s.nodes(all)
	}
	if c.Level == Ranks {
		s.ranks(all, &c.tally, c.Once)
	}
	return s
}

// source is a State, and the time of its last answer.
type source struct {
	*view.State
	name string
	// told is when the source last answered; zero if it has not answered since this Collector
	// began.
	told time.Time
	up   bool
}

// look reads the states, and notes when each source answered. The state of a source that does not
// answer is old.
func (c *Collector) look() (all []source) {
	if c.told == nil {
		c.told = map[string]time.Time{}
	}
	names := map[string]bool{}
	for _, state := range c.States() {
		s := source{State: state, name: clean(state.Source, maxName)}
		if names[s.name] {
			continue
		}
		names[s.name] = true
		if s.up = state.Trouble == "" && !(state.Since.IsZero() && state.Version == ""); s.up {
			c.told[s.name] = cmp.Or(state.Answered, state.At)
		}
		s.told = c.told[s.name]
		all = append(all, s)
	}
	for name := range c.told {
		if !names[name] {
			delete(c.told, name)
		}
	}
	return all
}

// known reports whether a source answered lately.
func (s source) known() bool { return s.At.Sub(s.told) <= Stale }

// maxName and maxText bound the bytes of a label's value.
const maxName, maxText = 128, 200

// clean makes text of users a valid label value: UTF-8, without control characters, and not long.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
