package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher"
)

type metricsOptions struct {
	cli.ClusterFlags
	job, textfile, level string
	every                time.Duration
}

func newMetrics(s *cli.Console) *cobra.Command {
	var o metricsOptions
	c := cli.NewVerb("metrics [JOB]", "print metrics of jobs and nodes for Prometheus, or keep a file of them up to date", cli.Args(0, 1))
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", "`HOST:PORT` of the coordinator, or of several with commas between them; when empty, the one that runs on this machine, and those of your jobs here")
	f.StringVar(&o.TokenFile, "token-file", "", cli.TokenUsage)
	f.StringVar(&o.textfile, "textfile", "", "write `FILE` for node-exporter's textfile collector, in one piece, instead of printing; its name ends in .prom")
	f.DurationVar(&o.every, "every", 0, "write FILE again each `TIME` until this is stopped, and remove it then; once when 0")
	f.StringVar(&o.level, "metrics-level", string(metrics.Jobs), "how much is told apart: `job`, node or rank")
	c.ValidArgsFunction = o.CompleteJobs(false)
	if err := c.RegisterFlagCompletionFunc("metrics-level", cobra.FixedCompletions([]cobra.Completion{"job", "node", "rank"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) {
		o.job = strings.Join(args, "")
		return 0, o.run(s)
	})
	return c
}

// leastEvery is how often nodes measure at most.
const leastEvery = time.Second

func (o *metricsOptions) run(s *cli.Console) error {
	level, err := metrics.ParseLevel(o.level)
	if err != nil {
		return cli.BadFlag("metrics-level", err)
	}
	if err := o.check(); err != nil {
		return err
	}
	r := newRounds(o, s.Warn)
	r.all.Level, r.all.Once = level, o.every == 0
	if o.every == 0 {
		return r.once(s)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return r.keep(ctx)
}

func (o *metricsOptions) check() error {
	switch {
	case o.every != 0 && o.textfile == "":
		return fmt.Errorf("%w: --every is for --textfile; golaunch dashboard serves the metrics to a Prometheus", launcher.ErrUsage)
	case o.every != 0 && o.every < leastEvery:
		return cli.BadFlag("every", fmt.Errorf("%v: at least %v", o.every, leastEvery))
	case o.textfile == "":
		return nil
	case filepath.Ext(o.textfile) != ".prom":
		return cli.BadFlag("textfile", fmt.Errorf("%s: node-exporter reads only files whose names end in .prom", o.textfile))
	}
	info, err := os.Stat(filepath.Dir(o.textfile))
	if err != nil || !info.IsDir() {
		return cli.BadFlag("textfile", fmt.Errorf("%s: there is no directory %s; make it, and give it to node-exporter as --collector.textfile.directory",
			o.textfile, filepath.Dir(o.textfile)))
	}
	if info, err := os.Lstat(o.textfile); err == nil && !info.Mode().IsRegular() {
		return cli.BadFlag("textfile", fmt.Errorf("%s is there, and no plain file", o.textfile))
	}
	if err := safefile.Path(filepath.Dir(o.textfile)); err != nil {
		return cli.BadFlag("textfile", err)
	}
	return nil
}

// rounds ask, one after the other. Each looks for the coordinators anew: one may have been started again, and jobs come and go. Those that
// were found before are watched from one round to the next, since who is slow shows only with time.
type rounds struct {
	o       *metricsOptions
	all     *metrics.Collector
	states  []*view.State
	watches map[string]*watch
	// lost are the sources that have vanished; warn says so, once of each.
	lost map[string]*absence
	warn func(error)
}

// absence is a source that has vanished, with what was known of it.
type absence struct {
	since time.Time
	last  *view.State
}

func newRounds(o *metricsOptions, warn func(error)) *rounds {
	r := &rounds{o: o, watches: map[string]*watch{}, lost: map[string]*absence{}, warn: warn}
	r.all = &metrics.Collector{Level: metrics.Jobs, States: func() []*view.State { return r.states }}
	return r
}

// once asks once. A file that is wanted says in any case what came of it.
func (r *rounds) once(s *cli.Console) error {
	err := errors.Join(r.ask(context.Background()), r.end(whichever))
	switch {
	case r.o.textfile != "":
		return errors.Join(r.write(), err)
	case err != nil:
		return err
	}
	return r.all.Write(s.Stdout)
}

// keep asks until ctx ends, and leaves no file behind: what it says would look like now.
func (r *rounds) keep(ctx context.Context) error {
	defer func() { _ = r.end(whichever) }() // they have answered
	ticker := time.NewTicker(r.o.every)
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
			r.warn(fmt.Errorf("the metrics say that nothing is seen: %w", err))
		} else if err == nil {
			said = ""
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	if err := os.Remove(r.o.textfile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the metrics, which will be old: %w", err)
	}
	return nil
}

func (r *rounds) write() error {
	if err := r.all.WriteFile(r.o.textfile); err != nil {
		return fmt.Errorf("cannot write metrics to %s: %w", r.o.textfile, err)
	}
	return nil
}

// askLimit bounds a round, and heardLimit in it the wait for what nodes measure.
const (
	askLimit   = 20 * time.Second
	heardLimit = 5 * time.Second
)

// ask reads the states of all sources. What goes wrong with all of them is its error, and in the states.
func (r *rounds) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errors.New("no coordinator has answered within 20s"))
	defer cancel()
	sources, err := sources.Target{Coordinator: r.o.Coordinator, TokenFile: r.o.TokenFile, Job: r.o.job}.Connect(ctx)
	if err != nil && !r.idle(err) {
		r.states = []*view.State{r.nothing(err)}
		return errors.Join(r.tokenless(err), r.end(whichever))
	}
	return r.look(ctx, sources)
}

// tokenless says that there is no token, which waiting does not bring.
type tokenless struct{ error }

// tokenless is what hinders a connection, as a [tokenless] where that is it.
func (r *rounds) tokenless(err error) error {
	_, none := mtls.FindToken(r.o.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if none == nil || errors.Is(err, launcher.ErrNoCoordinator) {
		return err
	}
	return tokenless{fmt.Errorf("%w; a service has --token-file, and User= is whose file it is", none)}
}

// look reads the states of sources. One that is watched already, without trouble, goes on being watched by its older connection.
func (r *rounds) look(ctx context.Context, sources map[string]view.Source) error {
	r.miss(ctx, sources)
	known := map[string]*view.State{}
	for at, w := range r.watches {
		known[at] = w.known()
	}
	_ = r.end(func(at string, w *watch) bool { return sources[at] == nil || w.model.State().Trouble != "" }) // what is gone has nothing to say
	double := map[string]view.Source{}
	for at, s := range sources {
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
		errs = nil // the states have the others
	}
	return errors.Join(errors.Join(errs...), sources.Close(double))
}

// miss notes which sources are gone that were seen and have not told of an end. One that is back is missed no more.
func (r *rounds) miss(ctx context.Context, here map[string]view.Source) {
	maps.DeleteFunc(r.lost, func(at string, l *absence) bool { return here[at] != nil || time.Since(l.since) >= sources.VanishedFor })
	for _, at := range slices.Sorted(maps.Keys(r.watches)) {
		w := r.watches[at]
		if last := w.known(); here[at] == nil && !last.Answered.IsZero() && !w.over(ctx) {
			r.lost[at] = &absence{time.Now(), last}
			r.warn(sources.VanishedError(at))
		}
	}
}

// losses are the states of what has vanished: soon nothing but that.
func (r *rounds) losses() (all []*view.State) {
	for _, at := range slices.Sorted(maps.Keys(r.lost)) {
		s := *r.lost[at].last
		s.At, s.Trouble = time.Now(), "its coordinator is gone"
		all = append(all, &s)
	}
	return all
}

// watch is a source that is watched.
type watch struct {
	at     string
	source view.Source
	model  *view.Model
	stop   context.CancelFunc
	done   chan struct{}
	// before is what was known when an older watch of the source ended in trouble; nil if there was none.
	before *view.State
}

// known is what the source last said.
func (w *watch) known() *view.State {
	if s := w.model.State(); !s.Answered.IsZero() || w.before == nil {
		return s
	}
	return w.before
}

// freshness is how old what is shown may be, at most.
const freshness = 5 * time.Second

func (r *rounds) watch(at string, s view.Source) *watch {
	w := &watch{at: at, done: make(chan struct{})}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.source = sources.Remember(ctx, at, s)
	w.model = view.New(map[string]view.Source{at: w.source}, view.Options{Job: r.o.job, Every: min(r.o.every, freshness), History: time.Minute})
	go func() { w.model.Run(ctx); close(w.done) }()
	return w
}

// over says that the job has ended for which the source was there.
func (w *watch) over(ctx context.Context) bool {
	l, ok := w.source.(*sources.LocalJob)
	if !ok {
		return false
	}
	l.AwaitResult(ctx)
	return l.HasResult()
}

// end ends the watches that are chosen.
func (r *rounds) end(which func(at string, w *watch) bool) error {
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

func whichever(string, *watch) bool { return true }

// state is the newest of a source, once its nodes have answered.
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

// settled says that all nodes that can have told what they measure.
func settled(s *view.State) bool {
	return !slices.ContainsFunc(s.Nodes, func(n *view.Node) bool { return n.Silent == 0 && n.Heard.IsZero() && n.Missing == "" })
}

// nothing is a State without anything. That this machine has no coordinator, and no job, is a state of it too, and no error.
func (r *rounds) nothing(err error) *view.State {
	s := &view.State{At: time.Now(), Source: cmp.Or(r.o.Coordinator, "this machine")}
	if err == nil {
		s.Since = s.At
	} else {
		s.Trouble = err.Error()
	}
	return s
}

// idle says that nothing is wrong but that this machine has no coordinator.
func (r *rounds) idle(err error) bool {
	return errors.Is(err, launcher.ErrNoCoordinator) && r.o.job == ""
}
