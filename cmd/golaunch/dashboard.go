package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/web"
	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/launcher"
)

type dashboardOptions struct {
	view.Where
	listen              string
	stop                bool
	metricsToken, level string
}

const dashboardLong = `It prints a link that works once, in one browser; when it was used it prints the next. The page shows what golaunch status and
golaunch logs show, and changes nothing unless --allow-stop is given. For one on a login node, forward its port from your own machine:
ssh -L 8265:127.0.0.1:8265 LOGIN-NODE. It ends with ^C.`

func newDashboard(s *streams) *cobra.Command {
	var o dashboardOptions
	c := newVerb("dashboard [--listen HOST:PORT]", "show a cluster and its jobs in a browser", takes(0, 0))
	c.Long = dashboardLong
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.TokenFile, "token-file", "", tokenUsage)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8265", "`HOST:PORT` where browsers find it; port 0 chooses a free one")
	f.BoolVar(&o.stop, "allow-stop", false, "whoever has the page may stop jobs")
	f.StringVar(&o.metricsToken, "metrics-token-file", "", "serve /metrics to a Prometheus that sends the token in `FILE` as its bearer token; not at all when empty")
	f.StringVar(&o.level, "metrics-level", string(metrics.Jobs), "how much the metrics tell apart: `job`, node or rank")
	c.RunE = s.does(func(*cobra.Command, []string) (int, error) {
		if _, err := metrics.ParseLevel(o.level); err != nil {
			return 0, bad("metrics-level", err)
		}
		if f.Changed("metrics-level") && o.metricsToken == "" {
			return 0, fmt.Errorf("%w: --metrics-level is for --metrics-token-file, without which there are no metrics", launcher.ErrUsage)
		}
		return 0, o.run(s)
	})
	return c
}

const whereUsage = "`HOST:PORT` of the coordinator, or of several with commas between them; all that run on this machine when empty"

// run serves until it is told to end.
func (o *dashboardOptions) run(io *streams) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	open, err := openTo(o.listen)
	if err != nil {
		return err
	}
	shown := web.Options{Version: readBuild().Version, AllowStop: o.stop, Stacks: stacksOf}
	if err := o.readMetricsToken(&shown); err != nil {
		return err
	}
	l, err := listenForBrowsers(o.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := o.place(ctx, io)
	if err != nil {
		return err
	}
	defer p.close()
	if open {
		io.warn(fmt.Errorf("the page at %s is plain HTTP, and whoever reads the link, or the traffic, sees it too; "+
			"better listen at 127.0.0.1 and forward that: %s", o.listen, web.Forward(loopback(l.Addr()), hostname())))
	}
	shown.Host, _, _ = net.SplitHostPort(o.listen)
	shown.Every = pace(ctx, p.now())
	shown.Model = view.New(p.now(), view.Options{Every: shown.Every, More: p.more})
	shown.Sources, shown.Links = p.now, printer(io, shown.Host, l.Addr())
	if shown.MetricsToken != "" {
		shown.Metrics = p.metrics(shown.Model, metrics.Level(o.level))
	}
	return web.New(shown).Serve(ctx, l)
}

// readMetricsToken reads who may see the metrics.
func (o *dashboardOptions) readMetricsToken(shown *web.Options) error {
	if o.metricsToken == "" {
		return nil
	}
	token, err := mtls.LoadToken(o.metricsToken, "")
	if err != nil {
		return bad("metrics-token-file", err)
	}
	cluster, err := mtls.FindToken(o.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err == nil && cluster.ID() == token.ID() {
		return bad("metrics-token-file", fmt.Errorf("%s has the token of the cluster, with which everybody does everything; make one that is only for metrics: "+
			"(umask 077; openssl rand -hex 32 >metrics.token)", o.metricsToken))
	}
	shown.MetricsToken = token.Text()
	return nil
}

func listenForBrowsers(at string) (net.Listener, error) {
	l, err := net.Listen("tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot listen at %s: another program does; --listen 127.0.0.1:0 chooses a free port", at)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen for browsers: %w; --listen takes an address of this machine", err)
	}
	return l, nil
}

// place is where jobs are looked for, with the coordinators that are known there. Jobs of this machine that have coordinators of their own
// come and go.
type place struct {
	ctx   context.Context
	where view.Where
	// warn says what nobody asks for.
	warn func(error)

	mu      sync.Mutex
	sources map[string]view.Source
}

// place connects to what is there, until ctx ends. Without a coordinator that was named there may be nothing yet.
func (o *dashboardOptions) place(ctx context.Context, io *streams) (*place, error) {
	sources, err := o.Connect(ctx)
	if errors.Is(err, launcher.ErrNoCoordinator) && o.Coordinator == "" {
		io.say("no job of yours runs on this machine; the page will show those that begin here. --coordinator HOST:PORT is for those of a cluster")
		sources, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &place{ctx: ctx, where: o.Where, warn: io.warn, sources: map[string]view.Source{}}
	for at, source := range sources {
		p.add(at, source)
	}
	return p, nil
}

// add takes a new source.
func (p *place) add(at string, source view.Source) {
	source = remembering(p.ctx, at, source)
	if l, ok := source.(*localJob); ok {
		l.lost = func() { p.warn(vanished(at)) }
	}
	p.sources[at] = source
}

// remembering is a source as it is, but for a job of this machine with a coordinator of its own: what is known of that outlives it.
func remembering(ctx context.Context, at string, source view.Source) view.Source {
	client, ok := source.(*launcher.Client)
	if job, local := strings.CutPrefix(at, "job "); ok && local {
		return &localJob{Client: client, ctx: ctx, job: job, lost: func() {}}
	}
	return source
}

// vanished says of a source that it is gone, and nobody knows why.
func vanished(at string) error {
	return fmt.Errorf("the coordinator of %s is gone, and has not told of an end: golaunch_up is 0 for it until it is back, for an hour at most", at)
}

// missed is for how long metrics tell of a source that has vanished: long enough for an alert to be seen.
const missed = time.Hour

// now are the sources that are known.
func (p *place) now() map[string]view.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sources)
}

// close closes all of them.
func (p *place) close() { _ = view.Close(p.now()) } // they have answered

// maxPast bounds the jobs of this machine that are over and still known.
const maxPast = 20

// more finds jobs that have begun meanwhile, for a model, which closes what it has of them; here they stay.
func (p *place) more(ctx context.Context, known func(at string) bool) map[string]view.Source {
	begun := p.where.More(ctx, func(at string) bool { return p.now()[at] != nil })
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, source := range begun {
		p.add(at, source)
	}
	p.forget()
	found := map[string]view.Source{}
	for at, source := range p.sources {
		if !known(at) {
			found[at] = kept{source}
		}
	}
	return found
}

// forget lets go of the jobs that ended first.
func (p *place) forget() {
	var past []string
	ended := map[string]time.Time{}
	for at, source := range p.sources {
		if l, ok := source.(*localJob); ok && !l.since().IsZero() {
			past, ended[at] = append(past, at), l.since()
		}
	}
	slices.SortFunc(past, func(a, b string) int { return ended[a].Compare(ended[b]) })
	for _, at := range past[:max(0, len(past)-maxPast)] {
		_ = p.sources[at].Close() // it answers no more
		delete(p.sources, at)
	}
}

// kept is a source that whoever has it may not close.
type kept struct{ view.Source }

// Close leaves it as it is.
func (kept) Close() error { return nil }

// localJob is a job of this machine with a coordinator of its own, which ends with it: what was known of it then is what there is to say
// afterwards, until one of its name begins.
type localJob struct {
	*launcher.Client
	ctx context.Context
	job string
	// lost is called when the coordinator is gone and has not told how the job ended.
	lost func()

	mu   sync.Mutex
	last launcher.Status
	// over is closed when it is told how the job ends, or that nobody tells; nil when nobody waits for that.
	over   chan struct{}
	result *launcher.Result
	ended  time.Time
	closed bool
}

// lastWords bounds the wait for how a job ended whose coordinator is gone.
const lastWords = 3 * time.Second

// Query is as the coordinator says, or as it was. It does not wait for a coordinator whose job is known to be over.
func (l *localJob) Query(ctx context.Context, q launcher.Query) (launcher.Status, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	if over := l.waits(); over != nil {
		go func() {
			select {
			case <-over:
				if l.told() {
					cancel()
				}
			case <-asking.Done():
			}
		}()
	} else if l.gone(ctx) {
		if past, ok := l.past(ctx); ok {
			return past, nil
		}
	}
	status, err := l.Client.Query(asking, q)
	if err == nil {
		l.note(status, !q.Brief)
		return status, nil
	}
	if l.told() || l.gone(ctx) {
		if past, ok := l.past(ctx); ok {
			return past, nil
		}
	}
	return status, err
}

// waits is the channel that tells of the job's end, nil when nobody waits for that.
func (l *localJob) waits() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// told says that it is known how the job ended.
func (l *localJob) told() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result != nil
}

// gone says that nobody tells anything of the job on this machine.
func (l *localJob) gone(ctx context.Context) bool {
	jobs, err := launcher.LocalJobs(ctx)
	return err == nil && !slices.Contains(jobs, l.job)
}

// note takes what the coordinator says, and has it tell how the job ends.
func (l *localJob) note(s launcher.Status, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if whole {
		l.last = s
	}
	l.result, l.ended = nil, time.Time{}
	if l.over == nil {
		l.over = make(chan struct{})
		go l.wait(l.over)
	}
}

// wait waits for the job's end.
func (l *localJob) wait(over chan struct{}) {
	defer close(over)
	result, err := l.Wait(l.ctx, l.job)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = nil; err == nil {
		l.result = &result
	}
}

// since is when the job ended, zero if it has not.
func (l *localJob) since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// past is what is known of a job that is over.
func (l *localJob) past(ctx context.Context) (launcher.Status, bool) {
	l.hear(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.last.Jobs, func(j launcher.JobStatus) bool { return j.ID == l.job })
	if i < 0 || l.closed {
		return launcher.Status{}, false
	}
	if l.ended.IsZero() {
		if l.ended = time.Now(); l.result == nil {
			l.lost()
		}
	}
	j := l.last.Jobs[i]
	j.Phase, j.Finished, j.Result = "finished", cmp.Or(j.Finished, l.ended), cmp.Or(l.result, j.Result)
	if j.Waits = "its coordinator is gone; where it was started is told how it ended"; j.Result != nil {
		j.Waits = j.Result.Reason
	}
	return launcher.Status{Jobs: []launcher.JobStatus{j}}, true
}

// hear waits, when the coordinator is just gone, for how the job ended.
func (l *localJob) hear(ctx context.Context) {
	l.mu.Lock()
	over := l.over
	if !l.ended.IsZero() {
		over = nil
	}
	l.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(lastWords):
	case <-ctx.Done():
	}
}

// Close ends what is known of it.
func (l *localJob) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.Client.Close()
}

// metrics are those of all that is known. Jobs that come and go do not change what their source is called.
func (p *place) metrics(m *view.Model, level metrics.Level) http.Handler {
	c := &metrics.Collector{Level: level, States: func() []*view.State {
		s := m.State()
		if p.where.Coordinator == "" {
			s.Source = "this machine"
		}
		if s.Trouble == "" && s.Since.IsZero() {
			s.Since = s.At // a machine without jobs is no trouble
		}
		return append(p.vanished(), s)
	}}
	return c.Handler()
}

// vanished are the jobs of this machine whose coordinators have gone lately without telling how they ended.
func (p *place) vanished() (all []*view.State) {
	sources := p.now()
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if l, ok := sources[at].(*localJob); ok && !l.since().IsZero() && time.Since(l.since()) < missed && !l.told() {
			all = append(all, &view.State{At: time.Now(), Source: at, Trouble: "its coordinator is gone"})
		}
	}
	return all
}

// printer prints each link to a listener at a name that the user has given.
func printer(io *streams, host string, at net.Addr) func(string) {
	var mu sync.Mutex
	used := false
	return func(path string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case used:
			io.say("the link was used; the next is")
		case os.Getenv("SSH_CONNECTION") != "" && loopback(at) == at:
			io.say("the dashboard runs here; on your own machine run " + web.Forward(at, hostname()) + ", and open there, once")
		default:
			io.say("the dashboard runs; open, once")
		}
		used = true
		fmt.Fprintln(io.stdout, "http://"+addressOf(host, at)+path)
	}
}

// addressOf is where browsers find a listener: at the name that the user has given, and the port that it has. "localhost" may be another
// address, where another user may listen.
func addressOf(host string, at net.Addr) string {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil || host == "localhost" {
		return at.String()
	}
	return net.JoinHostPort(host, port)
}

// loopback is an address on this machine alone with the port of at, which is at itself if it is such a one.
func loopback(at net.Addr) net.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return at
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}
}

// hostname is the name of this one, for somebody who has come from another.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "THIS-MACHINE"
	}
	return name
}

// openTo says whether others than users of this machine reach an address. One that means all addresses is refused: who opens it to others
// says to whom.
func openTo(listen string) (bool, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false, bad("listen", fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:8265", listen))
	}
	addr, err := netip.ParseAddr(host)
	if host == "" || err == nil && addr.IsUnspecified() {
		return false, bad("listen", fmt.Errorf("%q is all addresses of this machine: name one, or better 127.0.0.1 with ssh -L", listen))
	}
	return !(err == nil && addr.IsLoopback() || host == "localhost"), nil
}

// stacksOf is what golaunch stacks prints of a job.
func stacksOf(ctx context.Context, source view.Source, job string) (string, error) {
	asked, ok := source.(interface {
		Stacks(ctx context.Context, job string, within time.Duration) (launcher.Stacks, error)
	})
	if !ok {
		return "", errors.New("its coordinator cannot be asked for them")
	}
	tree, err := asked.Stacks(ctx, job, stacksLimit)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, why := range tree.Missing {
		b.WriteString(why + "\n")
	}
	if ranks, _ := tree.Ranks(); ranks == 0 {
		b.WriteString("no rank of job " + job + " runs a program whose stack can be read\n")
	}
	err = tree.Text(&b, stacksWidth)
	return b.String(), err
}

// stacksLimit is how long nodes have for their stacks on the page, and stacksWidth how wide they are, in characters.
const (
	stacksLimit = 10 * time.Second
	stacksWidth = 120
)

// pace is how often a cluster is looked at: large ones less often, since each of their ranks is measured and kept.
func pace(ctx context.Context, sources map[string]view.Source) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	nodes := 0
	for _, s := range sources {
		if status, err := s.Query(ctx, launcher.Query{Open: true, Brief: true}); err == nil {
			nodes += len(status.Nodes)
		}
	}
	return cmp.Or(min(time.Duration(nodes/100)*time.Second, 5*time.Second), time.Second)
}
