package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

const (
	// maxOrders bounds the messages that wait for one agent. A node whose ranks restart on their own gets one for each.
	maxOrders = 4096
	// patienceForHello bounds each of the wait for a TLS hello, the handshake, and the wait for the first message.
	patienceForHello = 5 * time.Second
)

// Serve takes agents and clients from a listener until Run has returned. Without TLS, which [Pipe] and tests do not need, it refuses to
// listen to other machines.
func (c *Coordinator) Serve(l net.Listener, config *tls.Config) error {
	if config == nil && !local(l.Addr()) {
		return fmt.Errorf("refusing to take agents at %v without TLS: it is open to other machines", l.Addr())
	}
	srv, audit, end := newServer(config, c.cfg.Warn, nil)
	defer end()
	pb.RegisterRendezvousServer(srv, service{c: c, audit: audit})
	pb.RegisterClusterServer(srv, control{c: c})
	return serve(srv, l, c.done, end)
}

// ServeClients takes clients, and no agents, from a listener of this machine until Run has returned.
func (c *Coordinator) ServeClients(l net.Listener) error {
	if !local(l.Addr()) {
		return fmt.Errorf("refusing to take clients at %v without TLS: it is open to other machines", l.Addr())
	}
	srv, _, end := newServer(nil, c.cfg.Warn, nil)
	defer end()
	pb.RegisterClusterServer(srv, control{c: c})
	return serve(srv, l, c.done, end)
}

// newServer is a server with no services yet. What end ends are handshakes that are at work.
func newServer(config *tls.Config, warn func(error), candidate *Candidate) (srv *grpc.Server, a *audit, end func()) {
	a = &audit{warn: warn, told: map[string]time.Time{}}
	over, end := context.WithCancel(context.Background())
	recovered := func(p any) error {
		warn(fmt.Errorf("a message caused a panic: %v\n%s", p, debug.Stack()))
		return status.Error(codes.Internal, "the coordinator failed to handle a message")
	}
	return grpc.NewServer(
		grpc.Creds(serverCredentials(over, config, a, candidate)),
		grpc.ConnectionTimeout(patienceForHello),
		grpc.MaxRecvMsgSize(wire.MaxMessage),
		grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.MaxConcurrentStreams(mostStreams),
		grpc.MaxHeaderListSize(wire.MaxHeader),
		grpc.ReadBufferSize(wire.BufferSize),
		grpc.WriteBufferSize(wire.BufferSize),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(wire.Window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * wire.PingAfter, Time: wire.PingAfter, Timeout: 10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(
			recovery.StreamServerInterceptor(recovery.WithRecoveryHandler(recovered)), auth.StreamServerInterceptor(authorize), limited),
		grpc.ChainUnaryInterceptor(
			recovery.UnaryServerInterceptor(recovery.WithRecoveryHandler(recovered)), auth.UnaryServerInterceptor(authorize)),
	), a, end
}

// patienceForLast bounds the wait for peers to take in the last answers, such as a refusal: who does not hear why goes on asking.
const patienceForLast = time.Second

// serve serves until done is closed.
func serve(srv *grpc.Server, l net.Listener, done <-chan struct{}, end func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-done
		end()
		limit := time.AfterFunc(patienceForLast, srv.Stop)
		srv.GracefulStop()
		limit.Stop()
	}()
	if err := srv.Serve(watchedListener{l}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("cannot take agents at %v: %w", l.Addr(), err)
	}
	<-ended
	return nil
}

// local says that no other machine can reach an address.
func local(a net.Addr) bool {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	return a.Network() == "unix" || a.Network() == "bufconn"
}

// service translates between streams and the goroutine of Run.
type service struct {
	pb.UnimplementedRendezvousServer
	c     *Coordinator
	audit *audit
}

// Join serves one agent for as long as its stream lasts.
func (s service) Join(stream pb.Rendezvous_JoinServer) error {
	h, err := s.audit.hello(stream)
	if err != nil {
		return err
	}
	return s.serve(stream, h)
}

// hello waits for what an agent says first.
func (a *audit) hello(stream pb.Rendezvous_JoinServer) (*pb.Hello, error) {
	msg, err := first(stream)
	if err == nil && msg.GetHello() == nil {
		err = wire.Refused("an agent must say hello first")
	}
	if err != nil {
		p, _ := peer.FromContext(stream.Context())
		a.refuse(p, err)
	}
	return msg.GetHello(), err
}

// refuse warns of an agent that is refused.
func (a *audit) refuse(p *peer.Peer, why error) {
	a.refused(p.Addr, fmt.Errorf("the agent at %v was refused: %s", p.Addr, status.Convert(why).Message()))
}

// serve serves an agent that has said hello. A connection has one agent only, so that its end means that agent's.
func (s service) serve(stream pb.Rendezvous_JoinServer, h *pb.Hello) error {
	p, _ := peer.FromContext(stream.Context())
	conn := p.Addr.(watchedAddr).conn
	if !conn.claimed.CompareAndSwap(false, true) {
		return status.Error(codes.ResourceExhausted, "this connection has an agent already")
	}
	l := newLink(conn)
	defer close(l.over)
	m, err := s.greet(stream.Context(), h, l, p)
	if status.Code(err) == codes.AlreadyExists {
		return err // it may come again under another name, and else says so itself
	}
	if err != nil {
		s.audit.refuse(p, err)
		return err
	}
	defer s.c.post(func() { s.c.broken(m, l) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.forward(stream, m, l)
	}()
	for {
		select {
		case <-l.wake:
			for _, msg := range l.drain() {
				if err := stream.Send(msg); err != nil {
					return err
				}
			}
		case err := <-l.cut:
			return err
		case <-ended:
			return status.Error(codes.Canceled, "the stream has ended")
		case <-s.c.done:
			return s.c.ending()
		}
	}
}

// forward has the coordinator take what an agent says, until that ends, at the latest with Join.
func (s service) forward(stream pb.Rendezvous_JoinServer, m *member, l *link) {
	for {
		msg, err := stream.Recv()
		if err != nil {
			return
		}
		if b := msg.GetHeartbeat(); b != nil && s.c.alone.Load() {
			s.c.beat(m, l, b)
			continue
		}
		first, last := l.add(msg)
		if first {
			s.c.arrived.add(arrival{m, l})
		}
		if !last {
			continue
		}
		select {
		case <-l.room:
		case <-stream.Context().Done():
			return
		}
	}
}

// ending answers an agent of a coordinator that is done.
func (c *Coordinator) ending() error {
	if c.elsewhere != nil {
		return c.elsewhere.Status()
	}
	return errOver
}

// greet asks for the admission of an agent.
func (s service) greet(ctx context.Context, hello *pb.Hello, l *link, p *peer.Peer) (*member, error) {
	from, err := certified(p)
	if err != nil {
		return nil, err
	}
	answers := make(chan admission, 1)
	s.c.post(func() {
		if ctx.Err() == nil {
			m, err := s.c.admit(l, hello, from)
			s.c.log.Vouch(func() { answers <- admission{m, err} })
		}
	})
	return s.admission(ctx, answers)
}

// admission is what an agent is told: it is a member, or why not.
type admission struct {
	m   *member
	err error
}

// admission waits for the answer to an agent.
func (s service) admission(ctx context.Context, answers <-chan admission) (*member, error) {
	a, ok := await(ctx, s.c, answers)
	switch {
	case ok:
		return a.m, a.err
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case s.c.sole == nil || s.c.cfg.Candidate != nil:
		return nil, s.c.ending()
	}
	return nil, wire.Refused(wire.Over)
}

// certified is the node in a peer's certificate; empty without TLS.
func certified(p *peer.Peer) (string, error) {
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return "", nil
	}
	id, err := mtls.Peer(info.State)
	if err != nil {
		return "", wire.Refused("%v", err)
	}
	return id.Node, nil
}

// first is what a stream begins with. One that does not say it in time ends with its handler, and so does the wait for it.
func first(stream pb.Rendezvous_JoinServer) (*pb.FromAgent, error) {
	limit := time.NewTimer(patienceForHello)
	defer limit.Stop()
	type message struct {
		*pb.FromAgent
		err error
	}
	came := make(chan message, 1)
	go func() {
		msg, err := stream.Recv()
		came <- message{msg, err}
	}()
	select {
	case m := <-came:
		if m.err != nil {
			return nil, status.Error(codes.Canceled, "it left without a word")
		}
		return m.FromAgent, nil
	case <-limit.C:
		return nil, status.Error(codes.DeadlineExceeded, "it says no hello")
	}
}
