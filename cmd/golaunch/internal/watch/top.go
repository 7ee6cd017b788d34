package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/top"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type topOptions struct {
	cli.ClusterFlags
	once bool
}

const topLong = `It shows jobs, then the nodes and ranks of one, the worst first: what is slow, stands still or has failed, and why. Press ? for its keys.
Where there is no terminal it prints one picture, as with --once. The exit code of --once and --json is 1 where something is wrong: a job waits
for nodes, has failed or stands still, or a node is silent. Of a job that is over only its end counts, and only if it was named.`

// NewTop returns the verb that shows jobs, nodes and ranks in a terminal.
func NewTop(s *cli.Console) *cobra.Command {
	var o topOptions
	c := cli.NewVerb("top [JOB]", "show jobs, nodes and ranks in a terminal, the worst first", cli.Args(0, 1))
	c.Long = topLong
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.TokenFile, "token-file", "", cli.TokenUsage)
	f.BoolVar(&o.once, "once", false, "print one picture as text; exit with 1 if something is wrong")
	f.BoolVar(&o.JSON, "json", false, "print one picture as JSON; exit as with --once")
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, strings.Join(args, "")) })
	return c
}

// exitWrong is the exit code if there is a problem.
const exitWrong = 1

// readyLimit bounds the wait for the first answers, and pictureLimit the wait for the nodes'
// measurements.
const (
	readyLimit   = 10 * time.Second
	pictureLimit = 3 * time.Second
)

func (o *topOptions) run(out *cli.Console, job string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	place := sources.Target{Coordinator: o.Coordinator, TokenFile: o.TokenFile, Job: job}
	known, err := sources.NewSet(ctx, place, func(error) {}) // the picture shows lost sources
	if err != nil {
		return 0, err
	}
	defer known.Close()
	m := view.New(known.All(), view.Options{Job: job, More: known.More})
	watching, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { m.Run(watching); close(done) }()
	defer func() { end(); <-done }()
	limited, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("no coordinator has answered within %v", readyLimit))
	defer cancel()
	if err := m.Ready(limited); err != nil {
		return 0, err
	}
	terminal, there := out.Stdout.(*os.File)
	if o.once || o.JSON || !there || !draws(os.Stdin, terminal) {
		return o.print(ctx, out.Stdout, m, job)
	}
	return 0, top.Run(ctx, top.Options{
		Model: m, Sources: known.List, Job: job, Input: os.Stdin, Output: terminal, Environ: os.Environ(),
		Stacks: func(ctx context.Context, job string) (string, error) { return stacksOfAny(ctx, known.List(), job) },
	})
}

// draws reports whether a terminal can show a screen and read keys.
func draws(in, out *os.File) bool {
	for _, f := range []*os.File{in, out} {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			return false
		}
	}
	return !top.Surroundings(os.Environ()).Dumb
}

// print prints one picture, once all nodes have answered or the time limit is over.
func (o *topOptions) print(ctx context.Context, w io.Writer, m *view.Model, job string) (int, error) {
	settling, cancel := context.WithTimeout(ctx, pictureLimit)
	defer cancel()
	top.Settled(settling, m)
	p := top.NewPicture(m.State().Past()) // the model has watched no samples yet
	wrong := p.Wrong(job)
	code := 0
	if wrong {
		code = exitWrong
	}
	if o.JSON {
		return code, jsonout.Print(w, showPicture(p, wrong))
	}
	return code, top.Print(w, p, job, 0)
}

// stacksOfAny asks each coordinator, until one knows the job.
func stacksOfAny(ctx context.Context, sources []view.Source, job string) (string, error) {
	var errs []error
	for _, source := range sources {
		text, err := stacksOf(ctx, source, job)
		if err == nil {
			return text, nil
		}
		if !errors.Is(err, launcher.ErrNotThere) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return "", fmt.Errorf("no coordinator knows job %s any more", job)
	}
	return "", errors.Join(errs...)
}

// top --json prints the output of status, the ranks of all jobs and the problems; docs/json.md is
// its contract.
type TopShown struct {
	listing.Cluster
	Wrong    bool           `json:"wrong"`
	Concerns []concernShown `json:"concerns"`
}

// concernShown is an alert about a job, a node or a rank.
type concernShown struct {
	Level string `json:"level"`
	Job   string `json:"job,omitempty"`
	Node  string `json:"node,omitempty"`
	Rank  *int   `json:"rank,omitempty"`
	Why   string `json:"why"`
}

// showPicture lists jobs and nodes, the worst first.
func showPicture(p *top.Picture, wrong bool) *TopShown {
	s := &TopShown{Cluster: listing.Cluster{Version: p.State.Version, Since: p.State.Since}, Wrong: wrong}
	s.Requested, s.Blocked = p.State.Requested, p.State.Blocked
	s.Coordinators = listing.NewCoordinators(p.State.Coordinators, p.State.Silent)
	for _, n := range p.Nodes {
		s.Nodes = append(s.Nodes, listing.NewNode(n.NodeStatus))
	}
	for _, j := range p.Jobs {
		shown := listing.Job{JobStatus: j.JobStatus}
		shown.AddRanks(j.Job.Ranks, j.Job.Slow, p.State.At)
		s.Jobs = append(s.Jobs, shown)
	}
	for _, f := range p.Findings() {
		c := concernShown{Level: f.Level.String(), Job: f.Job, Node: f.Node, Why: f.Why}
		if f.Rank >= 0 {
			c.Rank = &f.Rank
		}
		s.Concerns = append(s.Concerns, c)
	}
	return s
}
