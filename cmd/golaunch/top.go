package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/top"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

type topOptions struct {
	view.Where
	once bool
}

func newTop(s *streams) *cobra.Command {
	var o topOptions
	c := newVerb("top [JOB]", "show jobs, nodes and ranks in a terminal, the worst first", takes(0, 1))
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "", whereUsage)
	f.StringVar(&o.TokenFile, "token-file", "", tokenUsage)
	f.BoolVar(&o.once, "once", false, "print one picture as text; 1 is the exit code where a job waits, has failed or stands still, or a node is silent")
	c.RunE = s.does(func(_ *cobra.Command, args []string) (int, error) {
		o.Job = strings.Join(args, "")
		return o.run(s)
	})
	return c
}

// readyLimit bounds the wait for the first answers.
const readyLimit = 10 * time.Second

func (o *topOptions) run(io *streams) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	sources, err := o.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = view.Close(sources) }() // they have answered
	m := view.New(sources, view.Options{Job: o.Job, More: o.More})
	watching, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { m.Run(watching); close(done) }()
	defer func() { end(); <-done }()
	limited, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("no coordinator has answered within %v", readyLimit))
	defer cancel()
	if err := m.Ready(limited); err != nil {
		return 0, err
	}
	out, tty := io.stdout.(*os.File)
	if tty {
		_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
		tty = err == nil
	}
	if o.once || !tty {
		top.Settled(limited, m)
		p := top.NewPicture(m.State())
		if p.Wrong(o.Job) {
			return exitFailure, top.Print(io.stdout, p, o.Job, 0)
		}
		return 0, top.Print(io.stdout, p, o.Job, 0)
	}
	err = top.Run(ctx, top.Options{
		Model: m, Sources: sources, Job: o.Job, Input: os.Stdin, Output: out, Environ: os.Environ(),
		Stacks: func(ctx context.Context, job string) (string, error) {
			for _, source := range sources {
				if text, err := stacksOf(ctx, source, job); err == nil {
					return text, nil
				}
			}
			return "", errors.New("no coordinator could tell")
		},
	})
	return 0, err
}
