package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// queries are the clients' queries that are being answered.
type queries struct {
	// ctx ends the queries.
	ctx     context.Context
	running sync.WaitGroup
}

// begin admits queries until end is called.
func (q *queries) begin(ctx context.Context) (end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	q.ctx = ctx
	return end
}

// nextFunc returns the next part of an answer, or [io.EOF].
type nextFunc = func(context.Context) (wire.Answer, error)

// answer answers a query about a job, or about this node if id is empty.
func (m *membership) answer(id string, ask wire.Ask) {
	j := m.jobs[id]
	switch ask.About {
	case wire.AboutLogs:
		m.readLogs(id, ask)
	case wire.AboutRAS:
		var addrs []string
		for _, r := range j.running() {
			if r.RAS != "" {
				addrs = append(addrs, r.RAS)
			}
		}
		m.reply(ask, facts(func(ctx context.Context) (any, error) { return ncclprobe.Summary(ctx, addrs), nil }))
	case wire.AboutSamples:
		m.queries.running.Go(func() {
			next, done := m.sampler.Stream(id, ask.Samples)
			defer done()
			m.warn(session.Deliver(m.queries.ctx, ask, next))
		})
	case wire.AboutStacks:
		m.reply(ask, stacksOf(j))
	case wire.AboutEndpoint:
		m.reply(ask, once(j.listenEndpoint()))
	case wire.AboutGPUs:
		m.reply(ask, facts(func(ctx context.Context) (any, error) { return m.sampler.GPUMemory(ctx) }))
	case wire.AboutPing:
		m.reply(ask, once(func(context.Context) (wire.Answer, error) { return wire.Answer{}, nil }))
	default:
		m.reply(ask, once(func(context.Context) (wire.Answer, error) {
			return wire.Answer{}, fmt.Errorf("node %s does not know this question; install the same golaunch on all nodes", m.session.Node.Name)
		}))
	}
}

// reply delivers the answers that next returns, in the background.
func (m *membership) reply(ask wire.Ask, next nextFunc) {
	m.queries.running.Go(func() { m.warn(session.Deliver(m.queries.ctx, ask, next)) })
}

// warn warns of an error. It ignores errors that say that the client has gone.
func (m *membership) warn(err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !session.Unread(err) {
		m.Warn(err)
	}
}

// once returns a function that returns one answer and then [io.EOF].
func once(answer nextFunc) nextFunc {
	answered := false
	return func(ctx context.Context) (wire.Answer, error) {
		if answered {
			return wire.Answer{}, io.EOF
		}
		answered = true
		return answer(ctx)
	}
}

// facts returns a function that returns one answer, in JSON, and then [io.EOF].
func facts(find func(context.Context) (any, error)) nextFunc {
	return once(func(ctx context.Context) (wire.Answer, error) {
		found, err := find(ctx)
		if err != nil {
			return wire.Answer{}, err
		}
		text, err := json.Marshal(found)
		return wire.Answer{Facts: text}, err
	})
}

// running returns the running ranks of a job. It returns none for a nil job.
func (j *jobOnNode) running() (all []ranks.Rank) {
	if j == nil {
		return nil
	}
	for _, a := range j.attempts {
		for _, r := range a.started() {
			if r.Running() {
				all = append(all, r)
			}
		}
	}
	return all
}

// stacksLimit bounds the examination of the processes of a node.
const stacksLimit = 5 * time.Second

// stacksOf returns the stacks of a job's ranks: each answer has the encoded sample of one process.
func stacksOf(j *jobOnNode) nextFunc {
	var processes []stacks.Process
	for _, r := range j.running() {
		processes = append(processes, stacks.Process{PID: r.Process.Pid(), Rank: r.Bundle.Rank, Rights: j.rights()})
	}
	var taken []stacks.Sample
	looked := false
	return func(ctx context.Context) (wire.Answer, error) {
		if !looked {
			limited, cancel := context.WithTimeout(ctx, stacksLimit)
			taken, looked = stacks.Take(limited, processes, stacks.Options{Children: true}), true
			cancel()
		}
		if len(taken) == 0 {
			return wire.Answer{}, io.EOF
		}
		text, err := stacks.Encode(taken[0])
		taken = taken[1:]
		return wire.Answer{Facts: text}, err
	}
}

// readLogs delivers the past and future output of a job's ranks here.
func (m *membership) readLogs(id string, ask wire.Ask) {
	j := m.jobs[id]
	if j == nil || j.err != nil {
		m.queries.running.Go(func() { m.warn(m.readPastLogs(id, ask)) })
		return
	}
	from := logReader(j.work.Output.Dir, ask.Logs)
	j.readers.Go(func() {
		m.warn(session.Deliver(m.queries.ctx, ask, logChunks(from, j.stores.WorldSize())))
		m.warn(from.Close())
	})
}

// readPastLogs delivers the output of a job that is over here.
func (m *membership) readPastLogs(id string, ask wire.Ask) error {
	dir, err := m.Past(id)
	if err != nil {
		return session.Deliver(m.queries.ctx, ask, func(context.Context) (wire.Answer, error) { return wire.Answer{}, err })
	}
	from := logReader(dir, ask.Logs)
	return errors.Join(session.Deliver(m.queries.ctx, ask, logChunks(from, new(atomic.Int64))), from.Close(), dir.Close())
}

func logReader(dir *logs.Dir, f report.LogFilter) *logs.Reader {
	filter := logs.Filter{Attempt: max(logs.AllAttempts, f.Attempt)}
	if len(f.Ranks) > 0 {
		filter.Ranks = func(rank int) bool {
			return slices.ContainsFunc(f.Ranks, func(s report.Span) bool { return s.From <= rank && rank <= s.To })
		}
	}
	from := make(map[logs.File]int64, len(f.From))
	for _, p := range f.From {
		from[logs.File{Attempt: p.Attempt, Rank: p.Rank, Stream: console.Stream(p.Stream)}] = p.Offset
	}
	if f.Follow {
		return dir.Follow(filter, from)
	}
	return dir.Read(filter, from)
}

func logChunks(from *logs.Reader, worldSize *atomic.Int64) nextFunc {
	return func(ctx context.Context) (wire.Answer, error) {
		c, err := from.Next(ctx)
		at := report.LogPosition{Attempt: c.Attempt, Rank: c.Rank, Stream: int(c.Stream), Offset: c.Offset}
		return wire.Answer{Chunk: &report.LogChunk{LogPosition: at, Data: c.Data, WorldSize: int(worldSize.Load())}}, err
	}
}

// listenEndpoint returns the address at which a controller reaches the workers of a job. The job
// may be nil.
func (j *jobOnNode) listenEndpoint() nextFunc {
	if j == nil || j.endpoint == nil {
		return func(context.Context) (wire.Answer, error) {
			return wire.Answer{}, errors.New("no workers of that job run on this node")
		}
	}
	open := j.endpoint
	return func(ctx context.Context) (wire.Answer, error) {
		at, err := open.Listen(ctx)
		return wire.Answer{Facts: []byte(at.String())}, err
	}
}
