package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/web"
	"github.com/golaunch/golaunch/launcher"
)

type dashboardOptions struct {
	view.Where
	listen string
	stop   bool
}

const dashboardLong = `It prints a link that works once, in one browser; when it was used it prints the next. The page shows what golaunch status and
golaunch logs show, and changes nothing unless --allow-stop is given. For one on a login node, forward its port from your own machine:
ssh -L 8265:localhost:8265 LOGIN-NODE. It ends with ^C.`

func newDashboard(s *streams) *cobra.Command {
	var o dashboardOptions
	c := newVerb("dashboard [--listen HOST:PORT]", "show a cluster and its jobs in a browser", takes(0, 0))
	c.Long = dashboardLong
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.TokenFile, "token-file", "", tokenUsage)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8265", "`HOST:PORT` where browsers find it; port 0 chooses a free one")
	f.BoolVar(&o.stop, "allow-stop", false, "whoever has the page may stop jobs")
	c.RunE = s.does(func(*cobra.Command, []string) (int, error) { return 0, o.run(s) })
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
	sources, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close(sources) }() // they have answered
	l, err := net.Listen("tcp", o.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen at %s: another program does; --listen 127.0.0.1:0 chooses a free port", o.listen)
	}
	if err != nil {
		return fmt.Errorf("cannot listen for browsers: %w; --listen takes an address of this machine", err)
	}
	if open {
		io.warn(fmt.Errorf("the page at %s is plain HTTP, and whoever reads the link, or the traffic, sees it too; "+
			"better listen at 127.0.0.1 and use ssh -L", o.listen))
	}
	every := pace(ctx, sources)
	host, _, _ := net.SplitHostPort(o.listen)
	return web.New(web.Options{
		Model: view.New(sources, view.Options{Every: every}), Sources: sources, Version: readBuild().Version, Host: host, AllowStop: o.stop,
		Links: printer(io, "http://"+addressOf(host, l.Addr())), Every: every, Stacks: stacksOf,
	}).Serve(ctx, l)
}

// printer prints each link.
func printer(io *streams, base string) func(string) {
	var mu sync.Mutex
	used := false
	return func(path string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case used:
			io.say("the link was used; the next is")
		case os.Getenv("SSH_CONNECTION") != "":
			io.say("the dashboard runs here; forward its port from your own machine (ssh -L), and open there")
		default:
			io.say("the dashboard runs; open, once")
		}
		used = true
		fmt.Fprintln(io.stdout, base+path)
	}
}

// addressOf is where browsers find a listener: at the name that the user has given, and the port that it has.
func addressOf(host string, at net.Addr) string {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	return net.JoinHostPort(host, port)
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
