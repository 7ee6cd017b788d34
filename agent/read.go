package agent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"

	"github.com/golaunch/golaunch/internal/process/logs"
)

// read delivers what a job's ranks wrote here, while they write it or after.
func (a *life) read(id string, r wire.Ask) {
	s := a.shares[id]
	if s == nil || s.err != nil {
		a.readers.Go(func() { a.tell(a.readPast(id, r)) })
		return
	}
	from := reader(s.work.Output.Dir, r.Logs)
	s.readers.Go(func() {
		a.tell(session.Deliver(a.reading, r, chunks(from, &s.worldSize)))
		a.tell(from.Close())
	})
}

// tell warns of an error that is not that nobody reads any more.
func (a *life) tell(err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !session.Unread(err) {
		a.Warn(err)
	}
}

// readPast delivers the output of a job that is over here.
func (a *life) readPast(id string, r wire.Ask) error {
	dir, err := a.Past(id)
	if err != nil {
		return session.Deliver(a.reading, r, func(context.Context) (wire.Answer, error) { return wire.Answer{}, err })
	}
	from := reader(dir, r.Logs)
	return errors.Join(session.Deliver(a.reading, r, chunks(from, new(atomic.Int64))), from.Close(), dir.Close())
}

func reader(dir *logs.Dir, f wire.LogFilter) *logs.Reader {
	filter := logs.Filter{Attempt: max(logs.AllAttempts, f.Attempt)}
	if len(f.Ranks) > 0 {
		filter.Ranks = func(rank int) bool {
			return slices.ContainsFunc(f.Ranks, func(s wire.Span) bool { return s.From <= rank && rank <= s.To })
		}
	}
	from := make(map[logs.File]int64, len(f.From))
	for _, p := range f.From {
		from[logs.File{Attempt: p.Attempt, Rank: p.Rank, Stream: logs.Stream(p.Stream)}] = p.Offset
	}
	if f.Follow {
		return dir.Follow(filter, from)
	}
	return dir.Read(filter, from)
}

func chunks(from *logs.Reader, worldSize *atomic.Int64) func(context.Context) (wire.Answer, error) {
	return func(ctx context.Context) (wire.Answer, error) {
		c, err := from.Next(ctx)
		at := wire.LogPosition{Attempt: c.Attempt, Rank: c.Rank, Stream: int(c.Stream), Offset: c.Offset}
		return wire.Answer{Chunk: &wire.LogChunk{LogPosition: at, Data: c.Data, WorldSize: int(worldSize.Load())}}, err
	}
}
