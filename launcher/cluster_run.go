package launcher

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/internal/progress"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// Run runs a job on the cluster to its end, and shows its output, as [Run] does on its own nodes. A
// stop of this process, or its death, stops the job.
func (c *Client) Run(ctx context.Context, j Job) (report.Result, error) {
	j.Cluster.Detached, j.Cluster.Coordinator = false, c.Target
	j, err := j.complete()
	if err != nil {
		return report.Result{Code: 2}, err
	}
	l := newLocalRun(j)
	result, err := l.attach(ctx, c)
	return l.finish(result, err)
}

// submit runs the job on the cluster that it names.
func (l *localRun) submit(ctx context.Context) (report.Result, error) {
	c, err := Connect(ctx, l.job.Cluster.Coordinator, l.job.Network.TokenFile)
	if err != nil {
		return report.Result{}, err
	}
	defer c.Close()
	return l.attach(ctx, c)
}

// attach submits the job, shows decisions and the ranks' output, and passes on signals.
func (l *localRun) attach(ctx context.Context, c *Client) (report.Result, error) {
	w, err := c.Submit(context.WithoutCancel(ctx), l.job)
	if err != nil {
		return report.Result{}, err
	}
	defer w.Close()
	l.cluster = c.Target
	if l.job.Cluster.Detached {
		if err := l.printID(w.Job); err != nil {
			return report.Result{}, fmt.Errorf("job %s goes on, but its id could not be printed: %w", w.Job, err)
		}
		return report.Result{}, nil
	}
	go l.passSignals(ctx, c)
	shown := make(chan error, 1)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	var told *progress.Follower
	following.Go(func() { told = l.followProgress(reading, c.series(w.Job)) })
	defer following.Wait()
	defer stop()
	go func() { shown <- l.show(reading, c) }()
	result, err := w.result(context.Background(), l.observe)
	if err != nil {
		stop()
		cut := <-shown // show must return before the console is closed
		if errors.Is(err, ErrNotThere) {
			return report.Result{}, lost(err)
		}
		if !errors.Is(cut, context.Canceled) {
			err = errors.Join(err, cut)
		}
		return report.Result{}, lost(err)
	}
	limit := time.AfterFunc(showLimit, stop)
	defer limit.Stop()
	if err := <-shown; err != nil {
		l.Warn(fmt.Errorf("not all output could be shown: %w; see golaunch logs %s", err, w.Job))
	}
	stop()
	following.Wait()
	told.End(result.Ending)
	return result, nil
}

// lost says why this process can no longer follow a submitted job. Its error is never an
// ErrNotThere: the request was right, even if the coordinator says that there is no such job.
func lost(err error) error {
	if errors.Is(err, ErrNotThere) {
		text := err.Error() // as text, so that the new error does not wrap ErrNotThere
		return fmt.Errorf("the coordinator was started again without its log and does not know the job: %s; start it with its old --state-dir", text)
	}
	return err
}

// printID prints the ID of a job that runs on without this process.
func (l *localRun) printID(id string) error {
	if l.job.Output.JSON {
		return jsonout.Print(l.job.Output.Stdout, &jsonout.Submitted{Job: id})
	}
	_, err := fmt.Fprintln(l.job.Output.Stdout, id)
	return err
}

// showLimit bounds the wait for a job's last output after the job has ended.
const showLimit = time.Minute

// Wait waits for the end of a job, and returns its result.
func (c *Client) Wait(ctx context.Context, id string) (report.Result, error) {
	w, err := c.Watch(ctx, id)
	if err != nil {
		return report.Result{}, err
	}
	defer w.Close()
	return w.result(ctx, func(report.Decision) {})
}

// show prints the job's output as it arrives.
func (l *localRun) show(ctx context.Context, c *Client) error {
	chunks := c.Logs(ctx, l.job.ID, report.LogFilter{Ranks: l.job.Output.Ranks, Attempt: -1, Follow: true})
	return show(ctx, chunks, l.Console, l.job.Output.prefixed, func(missing string) { l.Warn(errors.New(missing)) })
}

// Print shows what the ranks of a job wrote, as the Stdout, Stderr and Prefix of o say. It reports
// whether some output is missing, and names that output on Stderr.
func (c *Client) Print(ctx context.Context, id string, f report.LogFilter, o Output) (missing bool, err error) {
	if err := o.check(); err != nil {
		return false, err
	}
	o.defaults()
	console := o.console()
	err = show(ctx, c.Logs(ctx, id, f), console, o.prefixed, func(what string) {
		missing = true
		console.Say("%s", what)
	})
	return missing, errors.Join(err, console.Close())
}

// show prints chunks on a console, with a prefix before each line if prefixed returns true for the
// job's world size.
func show(
	ctx context.Context, chunks iter.Seq2[report.LogChunk, error], screen *console.Console, prefixed func(worldSize int) bool, missing func(string),
) error {
	owners := map[int]string{}
	v := console.NewViewer(screen, func(rank int) string { return owners[rank] })
	defer v.Close(ctx)
	for chunk, err := range chunks {
		switch {
		case err != nil:
			return err
		case chunk.Missing != "":
			missing(chunk.Missing)
			continue
		}
		v.SetWorldSize(chunk.WorldSize)
		if prefixed(chunk.WorldSize) {
			owners[chunk.Rank] = fmt.Sprintf("[r%d %s] ", chunk.Rank, chunk.Node)
		}
		from := console.Source{Attempt: chunk.Attempt, Rank: chunk.Rank, Stream: console.Stream(chunk.Stream)}
		v.Add(ctx, from, chunk.Data)
	}
	return nil
}

// passSignals passes signals on to the coordinator. The coordinator stops the job in order at the
// first stop signal, kills it at a later ^C, and sends SIGUSR1 and SIGUSR2 to every rank. The end
// of ctx counts as a stop signal.
func (l *localRun) passSignals(ctx context.Context, c *Client) {
	cancelled, stopped := ctx.Done(), false
	for {
		var err error
		select {
		case <-l.done:
			return
		case <-cancelled:
			cancelled = nil
			end := rendezvous.Cancelled(ctx)
			_, err = c.Stop(context.Background(), l.job.ID, end.Code, end.Why)
		case s, open := <-l.job.Stopping.Signals:
			if !open {
				return
			}
			stopped, err = l.passSignal(c, s, stopped)
		}
		if err != nil {
			l.Warn(err)
		}
	}
}

// passSignal passes one signal on. It reports whether the job was told to stop, by this signal or
// an earlier one.
func (l *localRun) passSignal(c *Client, s os.Signal, stopped bool) (bool, error) {
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		return stopped, c.Signal(context.Background(), l.job.ID, sig)
	}
	if stopped && !signals.FromKeyboard(s) {
		return true, nil
	}
	return true, refusalOf(c.head.StopBy(context.Background(), l.job.ID, signals.Of(s), "got "+signals.Name(s)))
}
