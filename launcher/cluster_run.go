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

	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/rendezvous"
)

// Run runs a job on the cluster to its end, and shows its output, as [Run] does on its own nodes. A stop of this process stops the
// job; so does its death.
func (c *Client) Run(ctx context.Context, j Job) (Result, error) {
	j.Cluster.Detached, j.Cluster.Coordinator = false, c.Target
	j, err := j.complete()
	if err != nil {
		return Result{Code: 2}, err
	}
	h := arrive(j)
	result, err := h.attach(ctx, c)
	return h.finish(result, err)
}

// submit runs the job on the cluster that it names.
func (h *here) submit(ctx context.Context) (Result, error) {
	c, err := Connect(ctx, h.job.Cluster.Coordinator, h.job.Network.TokenFile)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	return h.attach(ctx, c)
}

// attach submits the job, shows what is decided and what the ranks print, and passes on what this process is told.
func (h *here) attach(ctx context.Context, c *Client) (Result, error) {
	w, err := c.Submit(context.WithoutCancel(ctx), h.job)
	if err != nil {
		return Result{}, err
	}
	defer w.Close()
	h.remote = c.Target
	if h.job.Cluster.Detached {
		if err := h.hand(w.Job); err != nil {
			return Result{}, fmt.Errorf("job %s goes on, but its id could not be printed: %w", w.Job, err)
		}
		return Result{}, nil
	}
	go h.command(ctx, c)
	shown := make(chan error, 1)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	var tells *teller
	following.Go(func() { tells = h.follow(reading, c.Samples) })
	defer following.Wait()
	defer stop()
	go func() { shown <- h.show(reading, c) }()
	result, err := h.watch(w)
	if err != nil {
		stop()
		cut := <-shown // nothing may be shown once the console is closed
		if errors.Is(err, ErrNotThere) {
			return Result{}, lost(err)
		}
		if !errors.Is(cut, context.Canceled) {
			err = errors.Join(err, cut)
		}
		return Result{}, lost(err)
	}
	limit := time.AfterFunc(showLimit, stop)
	defer limit.Stop()
	if err := <-shown; err != nil {
		h.warn(fmt.Errorf("not all output could be shown: %w; see golaunch logs %s", err, w.Job))
	}
	stop()
	following.Wait()
	tells.end(result)
	return result, nil
}

// lost is why a job that the cluster has taken in is out of sight. That is never how it was asked for, not even where a coordinator says that
// there is no such job.
func lost(err error) error {
	if errors.Is(err, ErrNotThere) {
		return fmt.Errorf("the coordinator has come back without its log, and knows nothing of the job: %s; keep its --state-dir", err.Error()) // not an ErrNotThere
	}
	return err
}

// hand prints the id of a job that goes on.
func (h *here) hand(id string) error {
	if h.job.Output.JSON {
		return jsonout.Print(h.job.Output.Stdout, &jsonout.Submitted{Job: id})
	}
	_, err := fmt.Fprintln(h.job.Output.Stdout, id)
	return err
}

// showLimit bounds the wait for the last output of a job that is over.
const showLimit = time.Minute

// Wait waits until a job is over, and returns how it ended.
func (c *Client) Wait(ctx context.Context, id string) (Result, error) {
	w, err := c.Watch(ctx, id)
	if err != nil {
		return Result{}, err
	}
	defer w.Close()
	for {
		d, err := w.Next(ctx)
		switch {
		case err != nil:
			return Result{}, err
		case d.Result != nil:
			return *d.Result, nil
		}
	}
}

// watch tells what is decided until the job is over.
func (h *here) watch(w *Watch) (Result, error) {
	for {
		d, err := w.Next(context.Background())
		switch {
		case err != nil:
			return Result{}, err
		case d.Result != nil:
			return *d.Result, nil
		}
		h.observe(d)
	}
}

// show prints the job's output as it comes.
func (h *here) show(ctx context.Context, c *Client) error {
	chunks := c.Logs(ctx, h.job.ID, LogFilter{Ranks: h.job.Output.Ranks, Attempt: -1, Follow: true})
	return show(ctx, chunks, h.console, h.job.Output.prefixed, func(missing string) { h.warn(errors.New(missing)) })
}

// Print shows what the ranks of a job wrote, as the Stdout, Stderr and Prefix of o say. It returns whether something is missing, which it
// tells on Stderr.
func (c *Client) Print(ctx context.Context, id string, f LogFilter, o Output) (missing bool, err error) {
	if err := o.validateFold(); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	o.defaults()
	console := o.console()
	err = show(ctx, c.Logs(ctx, id, f), console, o.prefixed, func(what string) {
		missing = true
		console.Say("%s", what)
	})
	return missing, errors.Join(err, console.Close())
}

// show prints chunks on a console, with whose they are before each line if prefixed says so for a job of that size.
func show(
	ctx context.Context, chunks iter.Seq2[LogChunk, error], console *logs.Console, prefixed func(worldSize int) bool, missing func(string),
) error {
	owners := map[int]string{}
	v := logs.NewViewer(console, func(rank int) string { return owners[rank] })
	defer v.Close(ctx)
	for chunk, err := range chunks {
		switch {
		case err != nil:
			return err
		case chunk.Missing != "":
			missing(chunk.Missing)
			continue
		}
		v.World(chunk.WorldSize)
		if prefixed(chunk.WorldSize) {
			owners[chunk.Rank] = fmt.Sprintf("[r%d %s] ", chunk.Rank, chunk.Node)
		}
		file := logs.File{Attempt: chunk.Attempt, Rank: chunk.Rank, Stream: logs.Stream(chunk.Stream)}
		v.Add(ctx, logs.Chunk{File: file, Offset: chunk.Offset, Data: chunk.Data})
	}
	return nil
}

// command passes on what this process is told: the coordinator stops the job in order at the first
// stop, and kills it at a later ^C; USR1 and USR2 go to every rank. The end of ctx is a stop too.
func (h *here) command(ctx context.Context, c *Client) {
	cancelled := ctx.Done()
	for {
		var err error
		select {
		case <-h.left:
			return
		case <-cancelled:
			cancelled = nil
			end := rendezvous.Cancelled(ctx)
			_, err = c.Stop(context.Background(), h.job.ID, end.Code, end.Why)
		case s, open := <-h.job.Stopping.Signals:
			if !open {
				return
			}
			err = h.pass(c, s)
		}
		if err != nil {
			h.warn(err)
		}
	}
}

func (h *here) pass(c *Client, s os.Signal) error {
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		return c.Signal(context.Background(), h.job.ID, sig)
	}
	if h.told && !signals.FromKeyboard(s) {
		return nil
	}
	h.told = true
	return asked(c.head.StopBy(context.Background(), h.job.ID, signals.Of(s), "got "+signals.Name(s)))
}
