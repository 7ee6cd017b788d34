package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// answer answers a question about a job, or about this node when id is empty.
func (a *life) answer(id string, ask wire.Ask) {
	switch ask.About {
	case wire.AboutLogs:
		a.read(id, ask)
	case wire.AboutRAS:
		a.readRAS(a.shares[id], ask)
	case wire.AboutSamples:
		a.readSamples(id, ask)
	case wire.AboutStacks:
		a.readStacks(a.shares[id], ask)
	case wire.AboutEndpoint:
		a.openEndpoint(a.shares[id], ask)
	case wire.AboutGPUs:
		a.readGPUs(ask)
	case wire.AboutPing:
		a.reply(ask, once(func(context.Context) (wire.Answer, error) { return wire.Answer{}, nil }))
	default:
		a.reply(ask, once(func(context.Context) (wire.Answer, error) {
			return wire.Answer{}, fmt.Errorf("node %s does not know this question; install the same golaunch on all nodes", a.session.Node.Name)
		}))
	}
}

// reply delivers what next returns, in the background.
func (a *life) reply(ask wire.Ask, next func(context.Context) (wire.Answer, error)) {
	a.readers.Go(func() { a.tell(session.Deliver(a.reading, ask, next)) })
}

// once is one answer and then the end.
func once(answer func(context.Context) (wire.Answer, error)) func(context.Context) (wire.Answer, error) {
	said := false
	return func(ctx context.Context) (wire.Answer, error) {
		if said {
			return wire.Answer{}, io.EOF
		}
		said = true
		return answer(ctx)
	}
}

// leastEvery bounds how often samples are sent.
const leastEvery = askedEvery

// readSamples delivers what was measured: of a question that goes on, all that is wanted of the past first, and then what is new.
func (a *life) readSamples(id string, ask wire.Ask) {
	s := a.sampler
	a.readers.Go(func() {
		news, done := s.ask()
		defer done()
		began := time.Now()
		after := began.Add(-ask.Samples.Since)
		last := time.Time{}
		next := func(ctx context.Context) (wire.Answer, error) {
			if !last.IsZero() && ask.Samples.Every <= 0 {
				return wire.Answer{}, io.EOF
			}
			if wait := max(leastEvery, ask.Samples.Every) - time.Since(last); !last.IsZero() && wait > 0 {
				if err := sleep(ctx, wait); err != nil {
					return wire.Answer{}, err
				}
			}
			select {
			case <-news:
			case <-ctx.Done():
				return wire.Answer{}, ctx.Err()
			}
			news, last = s.looked(), time.Now()
			found := s.table.Read(samples.Query{Job: id, After: after})
			after = last
			return wire.Answer{Samples: &wire.Samples{Now: last, Series: found}}, nil
		}
		a.tell(session.Deliver(a.reading, ask, next))
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
