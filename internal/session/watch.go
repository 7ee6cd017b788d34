package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/replica"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/munge"
	"github.com/golaunch/golaunch/internal/submitter"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// Watch follows a job, over connections that may break, and over the end of a coordinator that is started again in time.
type Watch struct {
	// Job is the job's ID, and Lease the coordinator's.
	Job   string
	Lease time.Duration

	client *Client
	// submission is what Submit brought; nil for a job that was there.
	submission []*pb.Submission
	owner      bool
	reason     string
	// granted is the part that has come of placement groups.
	granted placement.Plan
	// ctx ends with Close, and drop the stream.
	ctx    context.Context
	cancel context.CancelFunc
	drop   context.CancelFunc
	stream updates
}

// updates is the stream of Submit and Watch.
type updates interface{ Recv() (*pb.Update, error) }

// Submit brings a job, or a reservation, to the cluster. One that is not detached ends when its Watch is closed before it.
func (c *Client) Submit(ctx context.Context, s replica.Submission) (*Watch, error) {
	if why := wire.Excess(s); why != "" {
		return nil, &RequestError{Target: c.Target, Why: why, Bad: true}
	}
	return c.watch(ctx, &Watch{client: c, Job: s.Job.ID, submission: wire.FromSubmission(s), owner: !s.Detached})
}

// Watch follows a job that is there.
func (c *Client) Watch(ctx context.Context, id string) (*Watch, error) {
	return c.watch(ctx, &Watch{client: c, Job: id})
}

func (c *Client) watch(ctx context.Context, w *Watch) (*Watch, error) {
	w.ctx, w.cancel = context.WithCancel(ctx)
	if err := w.open(answerLimit); err != nil {
		w.cancel()
		return nil, c.explain(err)
	}
	return w, nil
}

// open makes a stream and waits until the coordinator has accepted it.
func (w *Watch) open(patience time.Duration) error {
	limit, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	end, _ := limit.Deadline()
	return w.client.ask(limit, func() error {
		if w.submission != nil {
			return w.submit(limit, end)
		}
		return w.start(time.Until(end), func(ctx context.Context) (updates, error) {
			return w.client.rpc.Watch(ctx, &pb.WatchRequest{Job: w.Job, Attach: w.owner}, grpc.WaitForReady(true))
		})
	})
}

// submit says who submits where the coordinator asks, by a credential for the connection, of which there may be a new one meanwhile. Without
// munge here it is not known.
func (w *Watch) submit(ctx context.Context, end time.Time) error {
	first := w.submission[0]
	first.Seals, first.Credential = munge.Installed(), ""
	for {
		err := w.start(time.Until(end), func(ctx context.Context) (updates, error) {
			stream, err := w.client.rpc.Submit(ctx, grpc.WaitForReady(true))
			if err == nil {
				err = wire.Put(stream, w.submission)
			}
			return stream, err
		})
		if status.Code(err) != codes.Unauthenticated || !first.Seals {
			return err
		}
		credential, sealErr := w.client.credential(ctx)
		first.Seals, first.Credential = sealErr == nil, credential
	}
}

// credential says who this client is, on its newest connection.
func (c *Client) credential(ctx context.Context) (string, error) {
	c.mu.Lock()
	conn, secure := c.last.(abruptConn)
	c.mu.Unlock()
	if !secure {
		return "", errors.New("a connection without TLS has no credential")
	}
	return submitter.Seal(ctx, conn.ConnectionState())
}

func (w *Watch) start(patience time.Duration, open func(context.Context) (updates, error)) error {
	ctx, cancel := context.WithCancel(w.ctx)
	limit := time.AfterFunc(patience, cancel)
	stream, err := open(ctx)
	if err != nil {
		cancel()
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		cancel()
		return err
	}
	if !limit.Stop() {
		cancel()
		return context.DeadlineExceeded
	}
	if w.drop != nil {
		w.drop()
	}
	w.stream, w.drop, w.Lease = stream, cancel, first.GetAccepted().GetLease().AsDuration()
	w.granted = placement.Plan{}
	return nil
}

// patienceOfNotice is the part of a lease after which a client of several coordinators misses that.
const patienceOfNotice = 5

// receive bears the silence of one of several coordinators for a while only.
func (w *Watch) receive() (*pb.Update, error) {
	if made, several := w.client.connection(); several && w.Lease > 0 {
		silence := time.AfterFunc(w.Lease/patienceOfNotice, func() { w.client.giveUp(made) })
		defer silence.Stop()
	}
	return w.stream.Recv()
}

// Next waits for the next update. After the Result it returns io.EOF. When ctx, which was Submit's or Watch's, ends, so does Next.
// Another error says that the coordinator is gone for good, or that the job is not there any more.
func (w *Watch) Next(ctx context.Context) (wire.Update, error) {
	for {
		m, err := w.receive()
		switch {
		case errors.Is(err, io.EOF):
			return wire.Update{}, io.EOF
		case err != nil:
			if err := w.mend(ctx, err); err != nil {
				return wire.Update{}, err
			}
			continue
		}
		if u, ok := w.take(m); ok {
			return u, nil
		}
	}
}

// mend opens the stream again after it broke, more than once if the coordinator is not yet there to stay.
func (w *Watch) mend(ctx context.Context, broke error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !w.client.mendable(broke) {
		return w.client.explain(broke)
	}
	w.submission = nil
	limit := time.Now().Add(w.Lease + wire.PatienceForReturn)
	err := broke
	for err != nil && w.client.mendable(err) {
		err = w.open(time.Until(limit))
	}
	if err != nil {
		return fmt.Errorf("lost job %s from sight: %w", w.Job, w.client.explain(err))
	}
	return nil
}

// Take is false for what has been told before, and what goes on.
func (w *Watch) take(m *pb.Update) (wire.Update, bool) {
	switch b := m.GetBody().(type) {
	case *pb.Update_Decision:
		if b.Decision.GetReason() == w.reason {
			return wire.Update{}, false
		}
		w.reason = b.Decision.GetReason()
		return wire.Update{Decision: new(wire.ToDecision(b.Decision))}, true
	case *pb.Update_Granted:
		w.granted.Groups = append(w.granted.Groups, wire.Convert(b.Granted.GetGroups(), wire.ToGroup)...)
		if b.Granted.GetMore() {
			return wire.Update{}, false
		}
		plan := w.granted
		w.granted = placement.Plan{}
		return wire.Update{Granted: &plan}, true
	case *pb.Update_Result:
		return wire.Update{Result: new(wire.ToResult(b.Result))}, true
	}
	return wire.Update{}, false
}

// Close ends the watch.
func (w *Watch) Close() { w.cancel() }

// LogReader reads the output of a job's ranks, over connections that may break.
type LogReader struct {
	client *Client
	job    string
	filter wire.LogFilter
	known  map[wire.LogPosition]known
	// lacking are the nodes of which it was told that something is missing.
	lacking map[string]bool
	cancel  context.CancelFunc
	stream  grpc.BidiStreamingClient[pb.LogsRequest, pb.LogChunk]
}

// known is how much of a file was read, and the node that has it; empty when several have, or it was read before.
type known struct {
	offset int64
	node   string
}

// Logs reads what the ranks of a job wrote, on all nodes: each rank's output in its order, that of different nodes as it comes.
func (c *Client) Logs(ctx context.Context, id string, f wire.LogFilter) (*LogReader, error) {
	if len(f.Ranks) > wire.MaxSpans {
		return nil, &RequestError{Target: c.Target, Why: fmt.Sprintf("%d ranges of ranks are chosen, %d at most", len(f.Ranks), wire.MaxSpans), Bad: true}
	}
	r := &LogReader{client: c, job: id, filter: f, known: map[wire.LogPosition]known{}, lacking: map[string]bool{}}
	for _, at := range f.From {
		r.known[at.File()] = known{offset: at.Offset}
	}
	return r, r.open(ctx)
}

// open makes a stream and waits until the coordinator has accepted it, for a while also one that is not yet there to stay.
func (r *LogReader) open(ctx context.Context) error {
	request := wire.FromRequest(r.job, r.filter, r.from())
	ctx, r.cancel = context.WithCancel(ctx)
	limit := time.AfterFunc(answerLimit+wire.PatienceForReturn, r.cancel)
	defer limit.Stop()
	for {
		err := r.client.ask(ctx, func() (err error) {
			r.stream, err = r.client.rpc.Logs(ctx, grpc.WaitForReady(true))
			if err == nil {
				err = wire.Put(r.stream, request)
			}
			if err == nil {
				var accepted metadata.MD
				if accepted, err = r.stream.Header(); err == nil && accepted == nil {
					_, err = r.stream.Recv() // why it was refused
				}
			}
			return err
		})
		if err == nil || !r.client.mendable(err) {
			return r.client.explain(err)
		}
	}
}

// from are the positions by node, those of the newest attempts first: of as many files as a request can have. Of others all comes again,
// and is dropped.
func (r *LogReader) from() map[string][]wire.LogPosition {
	from, size := map[string][]wire.LogPosition{}, wire.MaxPiece
	byAge := func(a, b wire.LogPosition) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Stream, b.Stream))
	}
	for _, at := range slices.SortedFunc(maps.Keys(r.known), byAge) {
		k := r.known[at]
		if from[k.node] == nil {
			size += len(k.node) + wire.MaxPosition
		}
		if size += wire.MaxPosition; size > wire.MaxRequest {
			break
		}
		at.Offset = k.offset
		from[k.node] = append(from[k.node], at)
	}
	return from
}

// maxMended bounds the times that a reader connects again without having read anything.
const maxMended = 8

// Next waits for the next piece. It returns io.EOF when everything was read, and with Follow, when the job is over.
func (r *LogReader) Next(ctx context.Context) (wire.LogChunk, error) {
	for mended := 0; ; mended++ {
		m, err := r.stream.Recv()
		switch {
		case err == nil:
			chunk := wire.ToChunk(m)
			if r.fresh(&chunk) {
				return chunk, nil
			}
			mended = 0
			continue
		case errors.Is(err, io.EOF):
			return wire.LogChunk{}, io.EOF
		case ctx.Err() != nil:
			return wire.LogChunk{}, context.Cause(ctx)
		case !r.client.mendable(err) || mended == maxMended:
			return wire.LogChunk{}, r.client.explain(err)
		}
		r.cancel()
		if err := r.open(ctx); err != nil {
			return wire.LogChunk{}, err
		}
	}
}

// fresh cuts off what is known: nodes that share a file system may both have a file. It is false if nothing is new.
func (r *LogReader) fresh(chunk *wire.LogChunk) bool {
	if chunk.Missing != "" {
		told := r.lacking[chunk.Node]
		r.lacking[chunk.Node] = true
		return !told
	}
	file := chunk.File()
	end := chunk.Offset + int64(len(chunk.Data))
	before, again := r.known[file]
	now := known{max(before.offset, end), chunk.Node}
	if again && before.node != chunk.Node {
		now.node = ""
	}
	r.known[file] = now
	if end <= before.offset {
		return false
	}
	if chunk.Offset < before.offset {
		chunk.Data, chunk.Offset = chunk.Data[before.offset-chunk.Offset:], before.offset
	}
	return true
}

// Close ends the reading.
func (r *LogReader) Close() { r.cancel() }
