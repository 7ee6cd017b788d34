package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/web"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

type dashboardOptions struct {
	where               sources.Target
	listen, portRange   string
	stop                bool
	metricsToken, level string
}

const dashboardLong = `It prints a link that works once, in one browser, and a new link when that one was used. The page shows what golaunch status and
golaunch logs show, and can change something only with --allow-stop. To see a dashboard on a login node, forward its port from your
own machine: ssh -L 8265:127.0.0.1:8265 LOGIN-NODE. Stop it with ^C.`

// NewDashboard returns the verb that serves a page for browsers.
func NewDashboard(s *cli.Console) *cobra.Command {
	var o dashboardOptions
	c := cli.NewVerb("dashboard [--listen HOST:PORT]", "show a cluster and its jobs in a browser", cli.Args(0, 0))
	c.Long = dashboardLong
	f := c.Flags()
	f.StringVar(&o.where.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.where.TokenFile, "token-file", "", cli.TokenUsage)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8265", "`HOST:PORT` for browsers; port 0 chooses a free one, from --port-range if given")
	f.StringVar(&o.portRange, "port-range", "", cli.PortRangeUsage)
	f.BoolVar(&o.stop, "allow-stop", false, "let users of the page stop jobs")
	f.StringVar(&o.metricsToken, "metrics-token-file", "", "serve /metrics to clients with the bearer token in `FILE`; without a file, do not (GOLAUNCH_METRICS_TOKEN has the token itself)")
	f.StringVar(&o.level, "metrics-level", string(metrics.Jobs), "how much the metrics tell apart: `job`, node or rank")
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		if _, err := metrics.ParseLevel(o.level); err != nil {
			return 0, cli.BadFlag("metrics-level", err)
		}
		if f.Changed("metrics-level") && o.metricsToken == "" && os.Getenv("GOLAUNCH_METRICS_TOKEN") == "" {
			return 0, fmt.Errorf("%w: --metrics-level is for --metrics-token-file, without which there are no metrics", launcher.ErrUsage)
		}
		return 0, o.run(s)
	})
	return c
}

const whereUsage = "`HOST:PORT` of the coordinator, or of several, separated by commas; all on this machine if empty"

// run serves the page until a signal ends it.
func (o *dashboardOptions) run(io *cli.Console) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	open, err := openTo(o.listen)
	if err != nil {
		return err
	}
	shown := web.Options{Version: version.String(), AllowStop: o.stop, Stacks: stacksOf}
	if err := o.readMetricsToken(&shown); err != nil {
		return err
	}
	l, err := listenForBrowsers(ctx, o.listen, o.portRange)
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := o.place(ctx, io)
	if err != nil {
		return err
	}
	defer p.Close()
	if open {
		io.Warn(fmt.Errorf("the page at %s is plain HTTP: anyone who reads the link or the traffic can open it; "+
			"better listen at 127.0.0.1 and forward that: %s", o.listen, web.Forward(loopback(l.Addr()), hostname())))
	}
	shown.Host, _, _ = net.SplitHostPort(o.listen)
	if everywhere(shown.Host) {
		shown.Host = "127.0.0.1" // kubectl port-forward forwards from there
	}
	shown.Every = pace(ctx, p.All())
	shown.Model = view.New(p.All(), view.Options{Every: shown.Every, More: p.More})
	shown.Sources, shown.Links = p.All, printer(io, shown.Host, l.Addr())
	if shown.MetricsToken != "" {
		shown.Metrics = (&metrics.Collector{Level: metrics.Level(o.level), States: func() []*view.State { return p.States(shown.Model) }}).Handler()
	}
	return web.New(shown).Serve(ctx, l)
}

// place connects to the coordinators to show. Without --coordinator there may be no coordinator
// yet.
func (o *dashboardOptions) place(ctx context.Context, io *cli.Console) (*sources.Set, error) {
	p, err := sources.NewSet(ctx, o.where, io.Warn)
	if errors.Is(err, launcher.ErrNoCoordinator) && o.where.Coordinator == "" {
		io.Say("no job of yours runs on this machine; the page will show jobs that start here. For a cluster's jobs give --coordinator HOST:PORT")
		err = nil
	}
	return p, err
}

// readMetricsToken reads the token that Prometheus sends.
func (o *dashboardOptions) readMetricsToken(shown *web.Options) error {
	itself := os.Getenv("GOLAUNCH_METRICS_TOKEN")
	var token mtls.Token
	var err error
	switch {
	case o.metricsToken != "":
		token, err = mtls.LoadToken(o.metricsToken, "")
	case itself != "":
		if token, err = mtls.ParseToken(itself); err != nil {
			err = fmt.Errorf("GOLAUNCH_METRICS_TOKEN: %w", err)
		}
	default:
		return nil
	}
	if err != nil {
		return cli.BadFlag("metrics-token-file", err)
	}
	cluster, err := mtls.FindToken(o.where.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err == nil && cluster.ID() == token.ID() {
		return cli.BadFlag("metrics-token-file", fmt.Errorf("%s has the cluster's token, which allows everything; make a token for metrics only: "+
			"(umask 077; openssl rand -hex 32 >metrics.token)", cmp.Or(o.metricsToken, "GOLAUNCH_METRICS_TOKEN")))
	}
	shown.MetricsToken = token.Text()
	return nil
}

func listenForBrowsers(ctx context.Context, at, within string) (l net.Listener, err error) {
	r, err := ports.Parse(within)
	if err != nil {
		return nil, cli.BadFlag("port-range", err)
	}
	if host, port, _ := net.SplitHostPort(at); port == "0" {
		l, err = r.Listen(ctx, host)
	} else {
		l, err = net.Listen("tcp", at)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot listen at %s: another program does; --listen 127.0.0.1:0 chooses a free port", at)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen for browsers: %w; --listen takes an address of this machine", err)
	}
	return l, nil
}

// printer returns a function that prints each link, at the host name that the user gave.
func printer(io *cli.Console, host string, at net.Addr) func(string) {
	var mu sync.Mutex
	used := false
	return func(path string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case used:
			io.Say("the link was used; the next is")
		case os.Getenv("SSH_CONNECTION") != "" && loopback(at) == at:
			io.Say("the dashboard runs here; on your own machine run " + web.Forward(at, hostname()) + ", and open there, once")
		default:
			io.Say("the dashboard runs; open, once")
		}
		used = true
		fmt.Fprintln(io.Stdout, "http://"+addressOf(host, at)+path)
	}
}

// addressOf returns the host that the user gave with the listener's port. For localhost it returns
// the listener's own address, since localhost may resolve to another address, where another user
// may listen.
func addressOf(host string, at net.Addr) string {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil || host == "localhost" {
		return at.String()
	}
	return net.JoinHostPort(host, port)
}

// loopback returns a loopback address with the port of at, or at itself if it is a loopback
// address.
func loopback(at net.Addr) net.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return at
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}
}

// hostname returns this machine's name, for ssh from another machine.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "THIS-MACHINE"
	}
	return name
}

// everywhere reports whether a host means all addresses of this machine.
func everywhere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// openTo reports whether other machines can reach an address. It refuses a host that means all
// addresses: the user must choose the network that may connect. It allows that host in a pod, whose
// address is not known beforehand: there it means the pod's own address and the address of kubectl
// port-forward.
func openTo(listen string) (bool, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false, cli.BadFlag("listen", fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:8265", listen))
	}
	addr, err := netip.ParseAddr(host)
	if everywhere(host) && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return false, cli.BadFlag("listen", fmt.Errorf("%q is all addresses of this machine: name one, or better 127.0.0.1 with ssh -L", listen))
	}
	return !(err == nil && addr.IsLoopback() || host == "localhost"), nil
}

// pace returns the interval at which to ask a cluster. Large clusters are asked less often, since
// each of their ranks is measured and kept.
func pace(ctx context.Context, sources map[string]view.Source) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, cli.AskTimeout)
	defer cancel()
	nodes := 0
	for _, s := range sources {
		if status, err := s.Query(ctx, report.Query{Open: true, Brief: true}); err == nil {
			nodes += len(status.Nodes)
		}
	}
	return cmp.Or(min(time.Duration(nodes/100)*time.Second, 5*time.Second), time.Second)
}
