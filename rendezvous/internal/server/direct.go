package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// Direct connects an agent of this process to a service for agents. It carries the messages that
// gRPC would carry, without sockets, HTTP/2 and encoding. Streams, contexts and errors behave as in
// gRPC.
func (s *Server) Direct(agents pb.RendezvousServer) *Direct {
	ctx, end := context.WithCancel(context.Background())
	d := &Direct{agents: agents, ctx: ctx, end: end, recovered: recovery.StreamServerInterceptor(s.recovery())}
	conn := &Conn{Conn: inProcess{end: end}}
	d.ctx = peer.NewContext(ctx, &peer.Peer{Addr: conn.RemoteAddr(), LocalAddr: conn.LocalAddr()})
	return d
}

// Direct is a connection inside this process (session.Conn).
type Direct struct {
	agents    pb.RendezvousServer
	recovered grpc.StreamServerInterceptor
	// ctx ends with the connection. A handler finds the connection in ctx as its peer.
	ctx context.Context
	end context.CancelFunc
}

// Close ends the connection and all of its streams.
func (d *Direct) Close() error {
	d.end()
	return nil
}

// LocalAddr returns the zero value, because the agent and the coordinator need no network.
func (*Direct) LocalAddr() netip.Addr { return netip.Addr{} }

// Join implements pb.RendezvousClient.
func (d *Direct) Join(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.FromAgent, pb.ToAgent], error) {
	c, s := newDirectStream[pb.FromAgent, pb.ToAgent](ctx, d)
	go s.serve(d.recovered, pb.Rendezvous_Join_FullMethodName, func() error { return d.agents.Join(s) })
	return c, nil
}

// Deliver implements pb.RendezvousClient.
func (d *Direct) Deliver(ctx context.Context, _ ...grpc.CallOption) (grpc.ClientStreamingClient[pb.Delivery, pb.Delivered], error) {
	c, s := newDirectStream[pb.Delivery, pb.Delivered](ctx, d)
	go s.serve(d.recovered, pb.Rendezvous_Deliver_FullMethodName, func() error { return d.agents.Deliver(s) })
	return c, nil
}

// Fetch implements pb.RendezvousClient.
func (d *Direct) Fetch(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.FetchRequest, pb.FetchReply], error) {
	c, s := newDirectStream[pb.FetchRequest, pb.FetchReply](ctx, d)
	go s.serve(d.recovered, pb.Rendezvous_Fetch_FullMethodName, func() error { return d.agents.Fetch(s) })
	return c, nil
}

// inProcess is the connection as handlers know it. It carries no bytes.
type inProcess struct {
	net.Conn
	end context.CancelFunc
}

func (c inProcess) Close() error {
	c.end()
	return nil
}

func (inProcess) LocalAddr() net.Addr { return inProcessAddr{} }

func (inProcess) RemoteAddr() net.Addr { return inProcessAddr{} }

type inProcessAddr struct{}

func (inProcessAddr) Network() string { return "memory" }

func (inProcessAddr) String() string { return "this process" }

// maxInFlight bounds the messages of a stream that the other side has not received, in each
// direction. The session and the coordinator have queues of their own.
const maxInFlight = 16

// directStream is a stream of questions Q and answers A.
type directStream[Q, A any] struct {
	questions chan *Q
	answers   chan *A
	// asked is closed when the agent sends no more questions. answered is closed when the handler
	// has returned; err is then the handler's error.
	asked    chan struct{}
	answered chan struct{}
	err      error
	// conn ends with the connection.
	conn context.Context
}

// directClient is the agent's side. As in gRPC, its context ends when the stream is over and the
// last answer is received.
type directClient[Q, A any] struct {
	grpc.ClientStream
	*directStream[Q, A]
	ctx       context.Context
	cancel    context.CancelFunc
	closeSend func()
}

// directServer is the handler's side.
type directServer[Q, A any] struct {
	grpc.ServerStream
	*directStream[Q, A]
	ctx    context.Context
	cancel context.CancelFunc
}

func newDirectStream[Q, A any](ctx context.Context, d *Direct) (*directClient[Q, A], *directServer[Q, A]) {
	s := &directStream[Q, A]{
		questions: make(chan *Q, maxInFlight), answers: make(chan *A, maxInFlight),
		asked: make(chan struct{}), answered: make(chan struct{}), conn: d.ctx,
	}
	c := &directClient[Q, A]{directStream: s, closeSend: sync.OnceFunc(func() { close(s.asked) })}
	c.ctx, c.cancel = context.WithCancel(ctx)
	h := &directServer[Q, A]{directStream: s}
	h.ctx, h.cancel = context.WithCancel(d.ctx)
	stop := context.AfterFunc(d.ctx, c.cancel)
	context.AfterFunc(c.ctx, func() {
		stop()
		h.cancel()
	})
	return c, h
}

// serve runs a handler to its end.
func (s *directServer[Q, A]) serve(recovered grpc.StreamServerInterceptor, method string, handle func() error) {
	defer s.cancel()
	info := &grpc.StreamServerInfo{FullMethod: method}
	err := recovered(nil, s, info, func(any, grpc.ServerStream) error {
		return limitStreams(nil, s, info, func(any, grpc.ServerStream) error { return handle() })
	})
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	s.err = err
	close(s.answered)
}

func (s *directServer[Q, A]) Context() context.Context { return s.ctx }

func (s *directServer[Q, A]) Recv() (*Q, error) {
	return receive(s.questions, s.asked, s.ctx.Done(), func() error {
		if s.ctx.Err() != nil {
			return status.FromContextError(s.ctx.Err()).Err()
		}
		return io.EOF
	})
}

// receive returns the next message. Once end or otherEnd is closed, it first returns the messages
// that were sent before, and then the error from why.
func receive[M any](messages <-chan *M, end, otherEnd <-chan struct{}, why func() error) (*M, error) {
	select {
	case m := <-messages:
		return m, nil
	case <-end:
	case <-otherEnd:
	}
	select {
	case m := <-messages:
		return m, nil
	default:
		return nil, why()
	}
}

func (s *directServer[Q, A]) Send(a *A) error {
	if s.ctx.Err() == nil {
		select {
		case s.answers <- plainpb.Copy(a):
			return nil
		case <-s.ctx.Done():
		}
	}
	return status.FromContextError(s.ctx.Err()).Err()
}

// SendAndClose sends the only answer.
func (s *directServer[Q, A]) SendAndClose(a *A) error { return s.Send(a) }

func (c *directClient[Q, A]) Context() context.Context { return c.ctx }

// Send returns io.EOF once the stream is over. Recv then returns the reason.
func (c *directClient[Q, A]) Send(q *Q) error {
	if c.ctx.Err() != nil {
		return io.EOF
	}
	select {
	case c.questions <- plainpb.Copy(q):
		return nil
	case <-c.answered:
	case <-c.ctx.Done():
	}
	return io.EOF
}

// CloseSend tells the handler that no more questions follow.
func (c *directClient[Q, A]) CloseSend() error {
	c.closeSend()
	return nil
}

func (c *directClient[Q, A]) Recv() (*A, error) {
	a, err := receive(c.answers, c.answered, c.ctx.Done(), c.ending)
	if err != nil {
		c.cancel()
	}
	return a, err
}

// ending returns the reason why there are no more answers.
func (c *directClient[Q, A]) ending() error {
	select {
	case <-c.answered:
		return cmp.Or(c.err, io.EOF)
	default:
	}
	if c.conn.Err() != nil {
		return status.Error(codes.Unavailable, "the connection was closed")
	}
	return status.FromContextError(c.ctx.Err()).Err()
}

// CloseAndRecv waits for the only answer.
func (c *directClient[Q, A]) CloseAndRecv() (*A, error) {
	c.closeSend()
	a, err := c.Recv()
	if err == nil {
		_, err = c.Recv()
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return a, err
}
