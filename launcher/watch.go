package launcher

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// Watch follows a job of a cluster. It continues after broken connections and restarts of the
// coordinator.
type Watch struct {
	// Job is the job's ID.
	Job string

	head *session.Watch
}

func watchOf(w *session.Watch, err error) (*Watch, error) {
	if err != nil {
		return nil, refusalOf(err)
	}
	return &Watch{w.Job, w}, nil
}

// Next waits for the next decision. The last decision has the Result; after it, Next returns
// io.EOF. Next fails when the ctx of Submit or Watch ends, when the coordinator does not come back,
// or when the coordinator no longer has the job.
func (w *Watch) Next(ctx context.Context) (report.Decision, error) {
	for {
		u, err := w.head.Next(ctx)
		switch {
		case err != nil:
			return report.Decision{}, refusalOf(err)
		case u.Decision != nil:
			return *u.Decision, nil
		case u.Result != nil:
			return report.Decision{At: time.Now(), Reason: u.Result.Reason, News: true, Result: u.Result}, nil
		}
	}
}

// result waits for the end of the job. It calls observe for each decision before that.
func (w *Watch) result(ctx context.Context, observe func(report.Decision)) (report.Result, error) {
	for {
		d, err := w.Next(ctx)
		switch {
		case err != nil:
			return report.Result{}, err
		case d.Result != nil:
			return *d.Result, nil
		}
		observe(d)
	}
}

// Close ends the watch. If Submit made the watch, Close stops the job too, unless the job is
// detached.
func (w *Watch) Close() { w.head.Close() }

// Logs reads the output of a job's ranks from their nodes, over connections that may break. The
// chunks of a rank are in order. If there is an error, it is the last value.
func (c *Client) Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error] {
	return func(yield func(report.LogChunk, error) bool) {
		r, err := c.head.Logs(ctx, id, f)
		if err != nil {
			yield(report.LogChunk{}, refusalOf(err))
			return
		}
		defer r.Close()
		for {
			chunk, err := r.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(chunk, refusalOf(err)) || err != nil {
				return
			}
		}
	}
}
