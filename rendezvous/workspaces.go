package rendezvous

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
	"github.com/golaunch/golaunch/rendezvous/internal/depot"
)

// useWorkspace keeps the job's workspace from now until the job is over.
func (c *Coordinator) useWorkspace(j *trackedJob) {
	if j.Workspace.ID == "" || j.Result != nil || j.workspace != nil {
		return
	}
	use := c.depot.Open(j.Workspace.ID)
	j.workspace = use
	go func() { _, _ = use.Load() }() // agents that want it are told why they cannot have it
}

// Fetch serves one agent.
func (s agentService) Fetch(stream pb.Rendezvous_FetchServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if !workspace.ValidID(m.GetId()) {
		return wire.Wrong("%q is no workspace", m.GetId())
	}
	use := s.c.depot.Open(m.GetId())
	defer use.Close()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-s.c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	for failed := 0; !m.GetHave(); {
		source, err := use.Find(ctx, failed)
		switch {
		case ctx.Err() != nil:
			return errEnding
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
		return errEnding
	}
}

// send sends a workspace, or where else it is.
func send(stream pb.Rendezvous_FetchServer, use *depot.Use, from *depot.Source) error {
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

// Offer takes in the workspace of a job that will be submitted.
func (s clientService) Offer(stream pb.Cluster_OfferServer) error { return takeIn(s.c.depot, stream) }

// Keep takes in a copy of a workspace, for the time when this process coordinates.
func (s voterService) Keep(stream pb.Quorum_KeepServer) error {
	return takeIn(depot.New(s.candidate.cfg.Workspaces), stream)
}

func takeIn(d *depot.Depot, stream grpc.ClientStreamingServer[pb.OfferRequest, pb.OfferReply]) error {
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

// holdWorkspace keeps a submission's workspace until release is called. The error says that it is not
// here; release must be called all the same.
func (s clientService) holdWorkspace(id string) (release func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	if !workspace.ValidID(id) {
		return func() {}, wire.Wrong("%q is no workspace", id)
	}
	use := s.c.depot.Open(id)
	if _, err := use.Load(); err != nil {
		return use.Close, status.Errorf(codes.FailedPrecondition, "the coordinator does not have workspace %.12s; submit the job again", id)
	}
	return use.Close, nil
}
