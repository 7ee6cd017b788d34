package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// links are an agent's connections, one after another.
type links struct {
	mu     sync.Mutex
	newest pb.RendezvousClient
	// replaced is closed when there is a newer connection; nil before the first.
	replaced chan struct{}
}

func (l *links) set(conn pb.RendezvousClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replaced != nil {
		close(l.replaced)
	}
	l.newest, l.replaced = conn, make(chan struct{})
}

func (l *links) get() (pb.RendezvousClient, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest, l.replaced
}

// silenceLimit bounds the time without progress in receiving or sending a workspace.
const silenceLimit = time.Minute

// fetchPause is the wait before another try on the same connection.
const fetchPause = time.Second

// Fetcher is an agent that wants a workspace.
type Fetcher struct {
	// Have says that the agent already has the workspace.
	Have bool
	// Begin starts from the beginning. Write takes the next bytes. Fetch gets the workspace from
	// another node, at HOST:PORT. End keeps the received workspace, and returns the address where
	// other nodes can get it from this node; empty if they cannot. An error of Begin or Write is
	// final. After an error of Fetch or End, the workspace is sent again from elsewhere.
	Begin func() error
	Write func([]byte) error
	Fetch func(ctx context.Context, addr string) error
	End   func() (addr string, err error)
}

// errKeep marks an error of this node, for which another source would not help.
type errKeep struct{ error }

func (e errKeep) Unwrap() error { return e.error }

// Fetch gets a workspace, and then lets other nodes get it from this one, until ctx ends. It fails
// if it cannot get the workspace.
func (s *Session) Fetch(ctx context.Context, w report.Workspace, f *Fetcher) error {
	for {
		conn, replaced := s.links.get()
		err := f.fetch(ctx, conn, w)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if kept, ok := errors.AsType[errKeep](err); ok {
			return kept.error
		}
		switch status.Code(err) {
		case codes.NotFound, codes.InvalidArgument, codes.ResourceExhausted:
			return errors.New(status.Convert(err).Message())
		case codes.Unimplemented:
			return errors.New("the coordinator knows no workspaces; install the same golaunch on all nodes")
		default:
		}
		again := time.NewTimer(fetchPause)
		select {
		case <-replaced:
		case <-again.C:
		case <-s.end.done:
			again.Stop()
			return fmt.Errorf("the session has ended: %w", err)
		case <-ctx.Done():
		}
		again.Stop()
	}
}

func (f *Fetcher) fetch(ctx context.Context, rpc pb.RendezvousClient, w report.Workspace) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := rpc.Fetch(ctx)
	if err != nil {
		return err
	}
	m := &pb.FetchRequest{Id: w.ID, Have: f.Have}
	if f.Have {
		if m.Addr, err = f.End(); err != nil {
			return errKeep{err}
		}
	}
	for {
		if err := stream.Send(m); err != nil {
			_, err = stream.Recv() // its error says why
			return err
		}
		m = &pb.FetchRequest{}
		if f.Have {
			_, err := stream.Recv()
			return err
		}
		failed, err := f.take(ctx, stream, w)
		if err != nil {
			return err
		}
		if failed == nil {
			m.Addr, failed = f.End()
		}
		if f.Have = failed == nil; f.Have {
			m.Have = true
		} else {
			m.Failed = wire.Plain(failed.Error())
		}
	}
}

// take receives a workspace. failed says why it was not received, if another source may help.
func (f *Fetcher) take(ctx context.Context, stream pb.Rendezvous_FetchClient, w report.Workspace) (failed, err error) {
	if err := f.Begin(); err != nil {
		return nil, errKeep{err}
	}
	for came := int64(0); came < w.Bytes; {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if m.GetSource() != "" {
			err := f.Fetch(ctx, m.GetSource())
			if _, final := errors.AsType[errKeep](err); final {
				return nil, err
			}
			return err, nil
		}
		if err := f.Write(m.GetData()); err != nil {
			return nil, errKeep{err}
		}
		came += int64(len(m.GetData()))
	}
	return nil, nil
}

// Offer sends a workspace to the coordinator, unless it is already there.
func (c *Client) Offer(ctx context.Context, w report.Workspace, read func() io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silenceLimit, func() { cancel(fmt.Errorf("it has taken none of the workspace for %v", silenceLimit)) })
	defer silence.Stop()
	err := c.ask(ctx, func() error {
		stream, err := c.rpc.Offer(ctx, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		return Offer(stream, w, read(), func() { silence.Reset(silenceLimit) })
	})
	if why := context.Cause(ctx); err != nil && why != nil {
		return fmt.Errorf("the coordinator at %s does not answer: %w", c.Target, why)
	}
	return c.explain(err)
}

// Offer sends a workspace on an Offer stream, unless the receiver already has it. It calls sent
// after each piece.
func Offer(stream grpc.ClientStreamingClient[pb.OfferRequest, pb.OfferReply], w report.Workspace, in io.Reader, sent func()) error {
	m, piece := &pb.OfferRequest{Workspace: wire.FromWorkspace(w)}, make([]byte, wire.MaxPiece)
	for {
		if err := stream.Send(m); err != nil { // the reply, or an error in its place, has arrived
			break
		}
		sent()
		n, err := io.ReadFull(in, piece)
		if n == 0 && err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			break
		}
		m = &pb.OfferRequest{Data: piece[:n]}
	}
	_, err := stream.CloseAndRecv()
	return err
}
