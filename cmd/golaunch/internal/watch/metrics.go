package watch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/scrape"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher"
)

type metricsOptions struct {
	cli.ClusterFlags
	job, textfile, level string
	every                time.Duration
}

// NewMetrics returns the verb that prints metrics for Prometheus, or keeps a file up to date.
func NewMetrics(s *cli.Console) *cobra.Command {
	var o metricsOptions
	c := cli.NewVerb("metrics [JOB]", "print metrics of jobs and nodes for Prometheus, or keep a file up to date", cli.Args(0, 1))
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", "`HOST:PORT` of the coordinator, or of several, separated by commas; if empty, the one on this machine, and those of your jobs here")
	f.StringVar(&o.TokenFile, "token-file", "", cli.TokenUsage)
	f.StringVar(&o.textfile, "textfile", "", "write `FILE` for node-exporter's textfile collector instead of printing; its name ends in .prom")
	f.DurationVar(&o.every, "every", 0, "rewrite FILE each `TIME`, and remove it at the end; 0 writes it once")
	f.StringVar(&o.level, "metrics-level", string(metrics.Jobs), "how much the metrics tell apart: `job`, node or rank")
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

// leastEvery is the shortest interval, since nodes do not measure more often.
const leastEvery = time.Second

func (o *metricsOptions) run(s *cli.Console) error {
	level, err := metrics.ParseLevel(o.level)
	if err != nil {
		return cli.BadFlag("metrics-level", err)
	}
	if err := o.check(); err != nil {
		return err
	}
	r := scrape.New(scrape.Options{
		Target: sources.Target{Coordinator: o.Coordinator, TokenFile: o.TokenFile, Job: o.job}, File: o.textfile, Every: o.every, Level: level, Warn: s.Warn,
	})
	if o.every == 0 {
		return r.Once(s.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return r.Keep(ctx)
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
