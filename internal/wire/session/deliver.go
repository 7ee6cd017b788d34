package session

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// Deliver calls next and sends the results, until next returns io.EOF. It sends any other error of
// next as a missing piece. Deliver waits for the reader. If Deliver itself returns an error, the
// reader is gone.
func Deliver(ctx context.Context, r wire.Ask, next func(context.Context) (wire.Answer, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.Via.Deliver(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.Delivery{Id: r.ID}); err != nil {
		return err
	}
	for {
		answer, err := next(stream.Context())
		if errors.Is(err, io.EOF) {
			_, err = stream.CloseAndRecv()
			return err
		}
		if err != nil {
			answer = wire.Answer{Missing: err.Error()}
		}
		for m := range wire.FromAnswer(answer) {
			if failed := stream.Send(&pb.Delivery{Answer: m}); failed != nil {
				return failed
			}
		}
		if err != nil {
			_, err = stream.CloseAndRecv()
			return err
		}
	}
}

// Unread reports whether an error of Deliver means that the reader is gone.
func Unread(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.Unavailable, codes.NotFound:
		return true
	}
	return errors.Is(err, io.EOF)
}
