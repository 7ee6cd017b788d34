package depot

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/workspace"
)

// Serve gives one agent the workspace that it asks for. If done is closed first, Serve returns the
// error ending.
func (d *Depot) Serve(stream pb.Rendezvous_FetchServer, done <-chan struct{}, ending error) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if !workspace.ValidID(m.GetId()) {
		return wire.Wrong("%q is no workspace", m.GetId())
	}
	use := d.Open(m.GetId())
	defer use.Close()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	for failed := 0; !m.GetHave(); {
		source, err := use.Find(ctx, failed)
		switch {
		case ctx.Err() != nil:
			return ending
		case err != nil:
			return status.Error(codes.NotFound, err.Error())
		}
		if err = send(stream, use, source); err == nil {
			m, err = stream.Recv()
		}
		bad := err == nil && m.GetFailed() != ""
		use.Done(source, bad)
		if err != nil {
			return err
		}
		if bad {
			failed++
		}
	}
	if m.GetAddr() != "" {
		defer use.Add(m.GetAddr())()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = stream.Recv()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ending
	}
}

// send sends a workspace, or tells the agent which other node has it.
func send(stream pb.Rendezvous_FetchServer, use *Use, from *Source) error {
	if from.Addr != "" {
		return stream.Send(&pb.FetchReply{Source: from.Addr})
	}
	archive, err := use.Load()
	if err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	piece := make([]byte, wire.MaxPiece)
	for in := archive.Reader(); ; {
		n, err := io.ReadFull(in, piece)
		if n > 0 {
			if err := stream.Send(&pb.FetchReply{Data: piece[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return status.Error(codes.Aborted, err.Error())
		}
	}
}

// TakeIn receives a workspace. A client sends the workspace of a job that it will submit. The
// leader sends copies, which this process needs if it becomes the leader.
func (d *Depot) TakeIn(stream grpc.ClientStreamingServer[pb.OfferRequest, pb.OfferReply]) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	w := wire.ToWorkspace(m.GetWorkspace())
	if !workspace.ValidID(w.ID) || w.Bytes <= 0 || w.Bytes > workspace.MaxArchive {
		return wire.Wrong("%q with %d bytes is no workspace", w.ID, w.Bytes)
	}
	use := d.Open(w.ID)
	defer use.Close()
	if _, err := use.Load(); err == nil {
		return stream.SendAndClose(&pb.OfferReply{})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return wire.Refused("the coordinator cannot read its workspaces: %v", err)
	}
	in, err := use.Receive(w)
	if err != nil {
		return wire.Refused("the coordinator takes no workspace: %v", err)
	}
	defer in.Abort()
	for in.Received() < w.Bytes {
		if m, err = stream.Recv(); err != nil {
			return err
		}
		if _, err := in.Write(m.GetData()); err != nil {
			return wire.Refused("the coordinator cannot keep the workspace: %v", err)
		}
	}
	if err := use.Keep(in); err != nil {
		return wire.Refused("the coordinator cannot keep the workspace: %v", err)
	}
	return stream.SendAndClose(&pb.OfferReply{})
}

// Hold keeps a submission's workspace, if it has one, until the caller calls release. The error
// says that the workspace is not here. The caller must call release even after an error.
func (d *Depot) Hold(id string) (release func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	if !workspace.ValidID(id) {
		return func() {}, wire.Wrong("%q is no workspace", id)
	}
	use := d.Open(id)
	if _, err := use.Load(); err != nil {
		return use.Close, status.Errorf(codes.FailedPrecondition, "the coordinator does not have workspace %.12s; submit the job again", id)
	}
	return use.Close, nil
}
