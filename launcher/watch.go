package launcher

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// Watch follows a job of a cluster over broken connections and restarts of the coordinator.
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

// Next waits for the next decision. The last one has the Result; after it, Next returns io.EOF. It
// fails when the ctx of Submit or Watch ends, the coordinator is gone for good, or it no longer has
// the job.
func (w *Watch) Next(ctx context.Context) (Decision, error) {
	for {
		u, err := w.head.Next(ctx)
		switch {
		case err != nil:
			return Decision{}, refusalOf(err)
		case u.Decision != nil:
			return decisionOf(*u.Decision), nil
		case u.Result != nil:
			return Decision{At: time.Now(), Reason: u.Result.Reason, News: true, Result: u.Result}, nil
		}
	}
}

// Close ends the watch. That of Submit stops the job too, unless it is detached.
func (w *Watch) Close() { w.head.Close() }

// LogFilter chooses what to read of a job's output.
type LogFilter struct {
	// Ranks are read; all when empty.
	Ranks []report.Span
	// Attempt is read; all when negative.
	Attempt int
	// Follow goes on until the end of the job.
	Follow bool
}

// LogChunk is a piece of a rank's output, as the rank wrote it.
type LogChunk struct {
	Node          string
	Rank, Attempt int
	// Stream is 1 for standard output and 2 for standard error. Offset is where Data begins in it,
	// in bytes.
	Stream int
	Offset int64
	// WorldSize is that of the attempt; 0 if it is no longer known.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
	// Missing says what could not be read, in the place of Data.
	Missing string
}

// Logs reads the output of a job's ranks from their nodes, over connections that may break. The
// chunks of a rank are in order. An error comes last.
func (c *Client) Logs(ctx context.Context, id string, f LogFilter) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		r, err := c.head.Logs(ctx, id, wire.LogFilter{Ranks: f.Ranks, Attempt: f.Attempt, Follow: f.Follow})
		if err != nil {
			yield(LogChunk{}, refusalOf(err))
			return
		}
		defer r.Close()
		for {
			chunk, err := r.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(chunkOf(chunk), refusalOf(err)) || err != nil {
				return
			}
		}
	}
}

func chunkOf(c session.LogChunk) LogChunk {
	return LogChunk{
		Node: c.Node, Rank: c.Rank, Attempt: c.Attempt, Stream: c.Stream, Offset: c.Offset, WorldSize: c.WorldSize, Data: c.Data,
		Missing: c.Missing,
	}
}

// Decision is one step of a job, with its reason in words.
type Decision struct {
	At     time.Time
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
	// Failure is how the attempt of the job, or of the node or rank that restarts by itself, began
	// to fail, if this was decided for that. What it says of the GPU and the step may be missing.
	Failure *report.Failure
	// Result is how the job ended, in the last that a Watch tells; nil otherwise.
	Result *report.Result
}

func decisionOf(d wire.Decision) Decision {
	return Decision{At: d.At, Reason: d.Reason, News: d.News, Failure: d.Failure}
}
