// Package scrape reads the metrics of every coordinator, once or periodically.
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher"
)

// Options name the sources, and where the metrics go.
type Options struct {
	Target sources.Target
	Level  metrics.Level
	// File is the textfile to write, and Every is the interval; with 0, the file is written once.
	File  string
	Every time.Duration
	Warn  func(error)
}

// scraper reads all coordinators in rounds. Each round looks for coordinators again, since jobs
// begin and end. It watches known coordinators from round to round, because a straggler shows only
// with time.
type scraper struct {
	opts    Options
	all     *metrics.Collector
	states  []*view.State
	watches map[string]*watch
	// lost are the sources that have vanished. There is one warning for each of them.
	lost map[string]*absence
}

// absence is a source that has vanished, with its last state.
type absence struct {
	since time.Time
	last  *view.State
}

func New(o Options) *scraper {
	r := &scraper{opts: o, watches: map[string]*watch{}, lost: map[string]*absence{}}
	r.all = &metrics.Collector{Level: o.Level, Once: o.Every == 0, States: func() []*view.State { return r.states }}
	return r
}

// Once reads the metrics once and writes them. It writes a file even after an error, since the
// metrics show the error.
func (r *scraper) Once(w io.Writer) error {
	err := errors.Join(r.ask(context.Background()), r.end(anyWatch))
	switch {
	case r.opts.File != "":
		return errors.Join(r.write(), err)
	case err != nil:
		return err
	}
	return r.all.Write(w)
}

// Keep writes the file until ctx ends, and then removes it, since readers would take an old file
// for the present state.
func (r *scraper) Keep(ctx context.Context) error {
	defer func() { _ = r.end(anyWatch) }() // the sources have answered
	ticker := time.NewTicker(r.opts.Every)
	defer ticker.Stop()
	said := ""
	for ctx.Err() == nil {
		err := r.ask(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := r.write(); err != nil {
			return err
		}
		if none, ok := errors.AsType[tokenless](err); ok {
			return none
		}
		if text := fmt.Sprint(err); err != nil && text != said {
			said = text
			r.opts.Warn(fmt.Errorf("the metrics say that nothing is seen: %w", err))
		} else if err == nil {
			said = ""
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	if err := os.Remove(r.opts.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the outdated metrics: %w", err)
	}
	return nil
}

func (r *scraper) write() error {
	if err := r.all.WriteFile(r.opts.File); err != nil {
		return fmt.Errorf("cannot write metrics to %s: %w", r.opts.File, err)
	}
	return nil
}

// askLimit bounds a round, and heardLimit the wait for the nodes' measurements.
const (
	askLimit   = 20 * time.Second
	heardLimit = 5 * time.Second
)

// ask reads the states of all sources. It fails only if all sources fail.
func (r *scraper) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errors.New("no coordinator has answered within 20s"))
	defer cancel()
	connected, err := r.opts.Target.Connect(ctx)
	if err != nil && !r.idle(err) {
		r.states = []*view.State{r.nothing(err)}
		return errors.Join(r.tokenless(err), r.end(anyWatch))
	}
	return r.look(ctx, connected)
}

// tokenless is the error of a missing token. Waiting does not help.
type tokenless struct{ error }

// tokenless returns err, as a [tokenless] if a missing token is the cause.
func (r *scraper) tokenless(err error) error {
	_, none := mtls.FindToken(r.opts.Target.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if none == nil || errors.Is(err, launcher.ErrNoCoordinator) {
		return err
	}
	return tokenless{fmt.Errorf("%w; a service has --token-file, and User= is whose file it is", none)}
}

// look reads the states of sources. A source that is watched without trouble keeps its older
// connection.
func (r *scraper) look(ctx context.Context, connected map[string]view.Source) error {
	r.miss(ctx, connected)
	known := map[string]*view.State{}
	for at, w := range r.watches {
		known[at] = w.known()
	}
	_ = r.end(func(at string, w *watch) bool { return connected[at] == nil || w.model.State().Trouble != "" }) // a source that is gone has no more answers
	double := map[string]view.Source{}
	for at, s := range connected {
		if r.watches[at] != nil {
			double[at] = s
		} else {
			r.watches[at] = r.watch(at, s)
			r.watches[at].before = known[at]
		}
	}
	names := slices.Sorted(maps.Keys(r.watches))
	states, errs := make([]*view.State, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, at := range names {
		all.Go(func() { states[i], errs[i] = r.watches[at].state(ctx) })
	}
	all.Wait()
	if r.states = append(states, r.losses()...); len(r.states) == 0 {
		r.states = []*view.State{r.nothing(nil)}
	}
	if slices.Contains(errs, nil) {
		errs = nil // the states contain the other errors
	}
	return errors.Join(errors.Join(errs...), sources.Close(double))
}

// miss notes the sources that have vanished without a result. It forgets sources that are back.
func (r *scraper) miss(ctx context.Context, here map[string]view.Source) {
	maps.DeleteFunc(r.lost, func(at string, l *absence) bool { return here[at] != nil || time.Since(l.since) >= sources.VanishedFor })
	for _, at := range slices.Sorted(maps.Keys(r.watches)) {
		w := r.watches[at]
		if last := w.known(); here[at] == nil && !last.Answered.IsZero() && !w.over(ctx) {
			r.lost[at] = &absence{time.Now(), last}
			r.opts.Warn(sources.VanishedError(at))
		}
	}
}

// losses are the states of sources that have vanished.
func (r *scraper) losses() (all []*view.State) {
	for _, at := range slices.Sorted(maps.Keys(r.lost)) {
		s := *r.lost[at].last
		s.At, s.Trouble = time.Now(), "its coordinator is gone"
		all = append(all, &s)
	}
	return all
}

// nothing returns a state without jobs or nodes. A machine without a coordinator and jobs is such a
// state, not an error.
func (r *scraper) nothing(err error) *view.State {
	s := &view.State{At: time.Now(), Source: cmp.Or(r.opts.Target.Coordinator, "this machine")}
	if err == nil {
		s.Since = s.At
	} else {
		s.Trouble = err.Error()
	}
	return s
}

// idle reports whether the only error is that this machine has no coordinator.
func (r *scraper) idle(err error) bool {
	return errors.Is(err, launcher.ErrNoCoordinator) && r.opts.Target.Job == ""
}
