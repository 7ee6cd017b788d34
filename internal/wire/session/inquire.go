package session

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// inquire opens a stream of answers, and waits until the coordinator, which may still be starting,
// has accepted the stream.
func (c *Client) inquire(ctx context.Context, q wire.Inquiry, from map[string][]report.LogPosition) (
	stream grpc.BidiStreamingClient[pb.Inquiry, pb.Answer], cancel context.CancelFunc, err error,
) {
	request := wire.FromInquiry(q, from)
	ctx, cancel = context.WithCancel(ctx)
	limit := time.AfterFunc(answerLimit+wire.PatienceForReturn, cancel)
	defer limit.Stop()
	for {
		err := c.ask(ctx, func() (err error) {
			stream, err = c.rpc.Inquire(ctx, grpc.WaitForReady(true))
			if err == nil {
				err = wire.Put(stream, request)
			}
			if err == nil {
				var accepted metadata.MD
				if accepted, err = stream.Header(); err == nil && accepted == nil {
					_, err = stream.Recv() // the error says why it was refused
				}
			}
			return err
		})
		if err == nil || !c.mendable(err) {
			return stream, cancel, c.explain(err)
		}
	}
}

// Inquire asks nodes, and yields their answers as they arrive. The answers of one node are in
// order. Inquire ends when all nodes have answered. If answers keep coming, it ends with the job.
// If the connection breaks, it ends with an error.
func (c *Client) Inquire(ctx context.Context, q wire.Inquiry) iter.Seq2[wire.Answer, error] {
	return func(yield func(wire.Answer, error) bool) {
		stream, cancel, err := c.inquire(ctx, q, nil)
		defer cancel()
		if err != nil {
			yield(wire.Answer{}, err)
			return
		}
		for err == nil {
			var m *pb.Answer
			if m, err = stream.Recv(); err == nil && !yield(wire.ToAnswer(m), nil) {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
		case ctx.Err() != nil:
			yield(wire.Answer{}, context.Cause(ctx))
		default:
			yield(wire.Answer{}, c.explain(err))
		}
	}
}
