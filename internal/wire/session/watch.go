package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/submitter"
	"github.com/golaunch/golaunch/placement"
)

// Watch follows a job. It survives broken connections, and a coordinator that is started again in
// time.
type Watch struct {
	// Job is the job's ID. Lease is the coordinator's lease.
	Job   string
	Lease time.Duration

	client *Client
	// submission has the messages that Submit sends; nil for an existing job.
	submission []*pb.Submission
	owner      bool
	reason     string
	// granted are the placement groups that have arrived so far.
	granted placement.Plan
	// ctx ends with Close. drop ends the stream.
	ctx    context.Context
	cancel context.CancelFunc
	drop   context.CancelFunc
	stream updates
}

// updates is the stream of Submit and Watch.
type updates interface{ Recv() (*pb.Update, error) }

// Submit submits a job or a reservation to the cluster. Closing the Watch ends a job that is not
// detached.
func (c *Client) Submit(ctx context.Context, s replica.Submission) (*Watch, error) {
	if why := wire.Excess(s); why != "" {
		return nil, &RequestError{Target: c.Target, Why: why, Bad: true}
	}
	s.Key = cmp.Or(s.Key, rand.Text())
	return c.watch(ctx, &Watch{client: c, Job: s.Job.ID, submission: wire.FromSubmission(s), owner: !s.Detached})
}

// Watch follows an existing job.
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

// open opens a stream and waits until the coordinator has accepted it. If the stream ends
// meanwhile, the submission may or may not have been accepted. It is sent again with the same key.
func (w *Watch) open(patience time.Duration) error {
	limit, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	end, _ := limit.Deadline()
	for {
		err := w.client.ask(limit, func() error {
			if w.submission != nil {
				return w.submit(limit, end)
			}
			return w.start(time.Until(end), func(ctx context.Context) (updates, error) {
				return w.client.rpc.Watch(ctx, &pb.WatchRequest{Job: w.Job, Attach: w.owner}, grpc.WaitForReady(true))
			})
		})
		if w.submission == nil || err == nil || !w.client.mendable(err) {
			return err
		}
		select {
		case <-time.After(redirectWait):
		case <-limit.Done():
			return err
		}
	}
}

// submit sends the submission. If the coordinator asks, submit adds a credential of the user that
// is bound to the connection. Without munge on this machine, the user stays unknown.
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

// credential returns a proof of this client's user, for the newest connection.
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

// patienceOfNotice is the part of a lease, a fifth, after which a client of several coordinators
// gives up a silent one.
const patienceOfNotice = 5

// receive tolerates the silence of one of several coordinators only for a while.
func (w *Watch) receive() (*pb.Update, error) {
	if made, several := w.client.newest(); several && w.Lease > 0 {
		silence := time.AfterFunc(w.Lease/patienceOfNotice, func() { w.client.giveUp(made) })
		defer silence.Stop()
	}
	return w.stream.Recv()
}

// Next waits for the next update. After the Result it returns io.EOF. It ends when ctx ends; ctx
// must be the context of Submit or Watch. Any other error says that the coordinator is gone for
// good, or that the job no longer exists.
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

// mend opens a broken stream again, more than once if necessary.
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
		return fmt.Errorf("lost track of job %s: %w", w.Job, w.client.explain(err))
	}
	return nil
}

// take returns false for a message that the caller need not see: a repetition, or a part of a
// longer update.
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
