package rendezvous

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// Serve serves agents and clients at a listener until Run returns. Without TLS it refuses to listen
// to other machines.
func (c *Coordinator) Serve(l net.Listener, config *tls.Config) error {
	if config == nil && !server.Local(l.Addr()) {
		return fmt.Errorf("refusing to take agents at %v without TLS: other machines can reach that address", l.Addr())
	}
	srv := server.New(config, c.cfg.Warn, nil)
	pb.RegisterRendezvousServer(srv, agentService{c: c, refusals: srv.Refusals})
	pb.RegisterClusterServer(srv, clientService{c: c})
	return srv.Serve(l, c.done)
}

// Direct connects an agent in this process without a socket. The agent uses Direct as
// [session.Options.Connect].
func (c *Coordinator) Direct(context.Context) (session.Conn, error) {
	srv := server.New(nil, c.cfg.Warn, nil)
	return srv.Direct(agentService{c: c, refusals: srv.Refusals}), nil
}

// ServeClients serves clients, but no agents, at a listener of this machine until Run returns.
func (c *Coordinator) ServeClients(l net.Listener) error {
	if !server.Local(l.Addr()) {
		return fmt.Errorf("refusing to take clients at %v without TLS: other machines can reach that address", l.Addr())
	}
	srv := server.New(nil, c.cfg.Warn, nil)
	pb.RegisterClusterServer(srv, clientService{c: c})
	return srv.Serve(l, c.done)
}

// agentService translates between the streams of agents and the goroutine of Run.
type agentService struct {
	pb.UnimplementedRendezvousServer
	c        *Coordinator
	refusals *server.Refusals
}

// Join serves one agent for as long as its stream lasts.
func (s agentService) Join(stream pb.Rendezvous_JoinServer) error {
	h, err := receiveHello(stream, s.refusals)
	if err != nil {
		return err
	}
	return s.serve(stream, h)
}

// receiveHello waits for an agent's first message. If the message does not arrive in time,
// receiveHello returns, and its goroutine ends with the stream.
func receiveHello(stream pb.Rendezvous_JoinServer, refusals *server.Refusals) (*pb.Hello, error) {
	type message struct {
		*pb.FromAgent
		err error
	}
	came := make(chan message, 1)
	go func() {
		msg, err := stream.Recv()
		came <- message{msg, err}
	}()
	limit := time.NewTimer(server.HelloTimeout)
	defer limit.Stop()
	var err error
	select {
	case m := <-came:
		switch {
		case m.err != nil:
			err = status.Error(codes.Canceled, "it left without giving a reason")
		case m.GetHello() == nil:
			err = wire.Refused("an agent must say hello first")
		default:
			return m.GetHello(), nil
		}
	case <-limit.C:
		err = status.Error(codes.DeadlineExceeded, "it sent no hello")
	}
	refusals.Agent(stream.Context(), err)
	return nil, err
}

// serve serves an agent that has said hello.
func (s agentService) serve(stream pb.Rendezvous_JoinServer, h *pb.Hello) error {
	conn := server.ConnOf(stream.Context())
	if !conn.ClaimAgent() {
		return status.Error(codes.ResourceExhausted, "this connection has an agent already")
	}
	l := server.NewAgentStream(conn)
	defer close(l.Over)
	m, err := s.admit(stream.Context(), h, l)
	if status.Code(err) == codes.AlreadyExists {
		return err // the agent may try again under another name; otherwise it reports the error itself
	}
	if err != nil {
		s.refusals.Agent(stream.Context(), err)
		return err
	}
	defer s.c.post(func() { s.c.streamEnded(m, l) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.receive(stream, m, l)
	}()
	for {
		select {
		case <-l.Wake:
			for _, msg := range l.Drain() {
				if err := stream.Send(msg); err != nil {
					return err
				}
			}
		case err := <-l.Cut:
			return err
		case <-ended:
			return status.Error(codes.Canceled, "the stream has ended")
		case <-s.c.done:
			return s.c.agentEndError()
		}
	}
}

// receive receives an agent's messages until the stream ends, which happens when Join returns at
// the latest.
func (s agentService) receive(stream pb.Rendezvous_JoinServer, m *member, l *server.AgentStream) {
	for {
		msg, err := stream.Recv()
		if err != nil {
			return
		}
		if b := msg.GetHeartbeat(); b != nil {
			if s.c.succession.exclusive.Load() {
				s.c.answerHeartbeat(m, l, b)
			} else if l.ReceiveHeartbeat(b) {
				s.c.heartbeats.add(readyStream{m, l})
			}
			continue
		}
		first, full := l.Receive(msg)
		if first {
			s.c.ready.add(readyStream{m, l})
		}
		if !full {
			continue
		}
		select {
		case <-l.Room:
		case <-stream.Context().Done():
			return
		}
	}
}

// agentEndError returns the answer to an agent once Run has ended.
func (c *Coordinator) agentEndError() error {
	if invitation := c.succession.invitation; invitation != nil {
		return invitation.Status()
	}
	return errEnding
}

// admit asks the coordinator to admit an agent.
func (s agentService) admit(ctx context.Context, hello *pb.Hello, l *server.AgentStream) (*member, error) {
	from, err := server.CertifiedNode(ctx)
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
	return s.awaitAdmission(ctx, answers)
}

// admission is the answer to an agent that wants to join: its membership, or why it is not
// admitted.
type admission struct {
	member *member
	err    error
}

// awaitAdmission waits until the coordinator has admitted or refused an agent.
func (s agentService) awaitAdmission(ctx context.Context, answers <-chan admission) (*member, error) {
	a, ok := await(ctx, s.c, answers)
	switch {
	case ok:
		return a.member, a.err
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case s.c.onlyJob == nil || s.c.cfg.Candidate != nil:
		return nil, s.c.agentEndError()
	}
	return nil, wire.Over()
}

// Fetch serves a workspace to one agent.
func (s agentService) Fetch(stream pb.Rendezvous_FetchServer) error {
	return s.c.depot.Serve(stream, s.c.done, errEnding)
}

// answerHeartbeat answers a heartbeat at once. The goroutine that reads the stream calls it.
func (c *Coordinator) answerHeartbeat(m *member, s *server.AgentStream, b *pb.Heartbeat) {
	if !m.Heartbeat(s) {
		return
	}
	if !s.Push(&pb.ToAgent{Acked: m.taken.Load(), Body: &pb.ToAgent_Heartbeat{Heartbeat: heartbeatReply(b)}}) {
		c.post(func() { c.fence(m, s) })
	}
}

// answerHeartbeats answers the waiting heartbeats once it is certain that no other process
// coordinates. Thousands of reports may also wait. The coordinator takes them in batches, and calls
// answerHeartbeats between batches.
func (c *Coordinator) answerHeartbeats() {
	for _, s := range c.heartbeats.next() {
		if b := s.stream.TakeHeartbeat(); s.member.stream == s.stream {
			s.member.Hear()
			c.queue(s.member, c.log.Vouch, &pb.ToAgent{Body: &pb.ToAgent_Heartbeat{Heartbeat: heartbeatReply(b)}})
		}
	}
}

func heartbeatReply(b *pb.Heartbeat) *pb.Heartbeat {
	return &pb.Heartbeat{At: b.GetAt(), Time: timestamppb.Now()}
}
