package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/web"
	"github.com/golaunch/golaunch/internal/wire/version"
)

type reportOptions struct {
	cli.ClusterFlags
	out string
}

const reportLong = `The file is the job's current page of golaunch dashboard. It loads nothing else, so you can mail it. It contains the job's command, the
names of nodes, and the last output of rank 0 and of a failed rank: read it before you send it.`

// NewReport returns the verb that writes a job's page as one file.
func NewReport(s *cli.Console) *cobra.Command {
	var o reportOptions
	c := cli.NewVerb("report JOB -o FILE.html", "write the page of a job as one file", cli.Args(1, 1))
	c.Long = reportLong
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.TokenFile, "token-file", "", cli.TokenUsage)
	f.StringVarP(&o.out, "output", "o", "", "`file` to write; - is the standard output")
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return 0, o.run(s, args[0]) })
	return c
}

// run writes the report of a job.
func (o *reportOptions) run(io *cli.Console, job string) error {
	if o.out == "" {
		return cli.BadFlag("output", errors.New("which file? -o FILE.html, or -o - for the standard output"))
	}
	if about, err := os.Lstat(o.out); err == nil && o.out != "-" && !about.Mode().IsRegular() {
		return cli.BadFlag("output", fmt.Errorf("%s is there, and no plain file; name one, or give -o - for the standard output", o.out))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	connected, err := sources.Target{Coordinator: o.Coordinator, TokenFile: o.TokenFile, Job: job}.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sources.Close(connected) }() // the sources have answered
	state, log, err := gather(ctx, connected, job)
	if err != nil {
		return err
	}
	return o.write(io, state, job, log)
}

// gather collects the job's state and log. It waits a limited time for the nodes, since some may be
// gone.
func gather(ctx context.Context, connected map[string]view.Source, job string) (*view.State, web.Log, error) {
	asking, cancel := context.WithTimeoutCause(ctx, measureLimit, errors.New("no coordinator answers"))
	defer cancel()
	model := view.New(connected, view.Options{Job: job})
	go model.Run(asking)
	if err := model.Ready(asking); err != nil {
		return nil, web.Log{}, err
	}
	state := measured(asking, model, job)
	reading, cancel := context.WithTimeout(ctx, logLimit)
	defer cancel()
	for _, source := range connected {
		if j := state.Job(job); j != nil {
			return state, web.ReadLog(reading, source, j), nil
		}
	}
	return state, web.Log{}, nil
}

// How long a report waits for the job's nodes to measure, and to send output.
const (
	measureLimit = 5 * time.Second
	logLimit     = 20 * time.Second
)

// measured returns the state once every rank was measured, or when ctx ends.
func measured(ctx context.Context, model *view.Model, job string) *view.State {
	for {
		changed := model.Changed()
		state := model.State()
		if j := state.Job(job); j == nil || len(j.Ranks) >= j.JobStatus.Ranks && (j.Finished.IsZero() || len(j.Ranks) > 0) {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state
		}
	}
}

// write writes the report.
func (o *reportOptions) write(s *cli.Console, state *view.State, job string, log web.Log) error {
	if o.out == "-" {
		return web.Report(s.Stdout, state, job, log, version.String())
	}
	size, replaced, err := replaceFile(o.out, func(w io.Writer) error { return web.Report(w, state, job, log, version.String()) })
	if err != nil {
		return err
	}
	said := fmt.Sprintf("the report is in %s (%d KiB)", o.out, (size+1023)>>10)
	if replaced {
		said += ", in the place of what was there"
	}
	s.Say(said)
	return nil
}

// replaceFile writes a file and then moves it into place, so that the file is never half written.
// It returns the file's size in bytes, and whether the file replaced another.
func replaceFile(path string, write func(io.Writer) error) (size int64, replaced bool, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, false, fmt.Errorf("cannot write beside %s: %w; name a file in a directory of yours", path, err)
	}
	defer os.Remove(f.Name())
	if err = write(f); err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, false, err
	}
	_, there := os.Lstat(path)
	return size, there == nil, os.Rename(f.Name(), path)
}
