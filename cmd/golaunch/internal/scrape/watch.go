package scrape

import (
	"context"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// watch is a source with the model that watches it.
type watch struct {
	at     string
	source view.Source
	model  *view.Model
	stop   context.CancelFunc
	done   chan struct{}
	// before is the last state of an older watch that ended in trouble; nil if there was none.
	before *view.State
}

// known is the source's last state.
func (w *watch) known() *view.State {
	if s := w.model.State(); !s.Answered.IsZero() || w.before == nil {
		return s
	}
	return w.before
}

// freshness is the greatest age of a state that is shown.
const freshness = 5 * time.Second

func (r *scraper) watch(at string, s view.Source) *watch {
	w := &watch{at: at, done: make(chan struct{})}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.source = sources.Remember(ctx, at, s)
	w.model = view.New(map[string]view.Source{at: w.source}, view.Options{Job: r.opts.Target.Job, Every: min(r.opts.Every, freshness), History: time.Minute})
	go func() { w.model.Run(ctx); close(w.done) }()
	return w
}

// over reports whether the job of the source has ended.
func (w *watch) over(ctx context.Context) bool {
	l, ok := w.source.(*sources.LocalJob)
	return ok && l.Over(ctx)
}

// end ends the watches for which the function which returns true.
func (r *scraper) end(which func(at string, w *watch) bool) error {
	over := map[string]view.Source{}
	for at, w := range r.watches {
		if which(at, w) {
			w.stop()
			<-w.done
			over[at] = w.source
			delete(r.watches, at)
		}
	}
	return sources.Close(over)
}

func anyWatch(string, *watch) bool { return true }

// state returns the newest state, once the nodes have answered.
func (w *watch) state(ctx context.Context) (*view.State, error) {
	if err := w.model.Ready(ctx); err != nil {
		return &view.State{At: time.Now(), Source: w.at, Trouble: err.Error()}, err
	}
	limit := time.NewTimer(heardLimit)
	defer limit.Stop()
	for {
		changed := w.model.Changed()
		s := w.model.State()
		if settled(s) {
			return s, nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return s, nil
		case <-ctx.Done():
			return s, nil
		}
	}
}

// settled reports whether all nodes that can report have reported their measurements.
func settled(s *view.State) bool {
	return !slices.ContainsFunc(s.Nodes, func(n *view.Node) bool { return n.Silent == 0 && n.Heard.IsZero() && n.Missing == "" })
}
