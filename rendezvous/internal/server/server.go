// Package server is the gRPC server of coordinators and voters, with bounds on everything that a
// peer can make it do.
//
// It limits handshakes, connections, streams and messages, checks who calls, survives panics of
// handlers and reports refused peers.
package server

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
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
)

// HelloTimeout bounds each of the TLS handshake and the wait for an agent's first message.
const HelloTimeout = 5 * time.Second

// lastAnswerTimeout bounds the wait for peers to read the last answers, such as a refusal: a peer
// that does not learn the reason keeps asking.
const lastAnswerTimeout = time.Second

// Server is a gRPC server to register services with.
type Server struct {
	*grpc.Server
	Refusals *Refusals
	// endHandshakes ends handshakes under way.
	endHandshakes context.CancelFunc
}

// New returns a server without services. hold, which may be nil, delays clients before the
// handshake.
func New(config *tls.Config, warn func(error), hold HoldFunc) *Server {
	over, end := context.WithCancel(context.Background())
	s := &Server{Refusals: newRefusals(warn), endHandshakes: end}
	recovered := recovery.WithRecoveryHandler(func(p any) error {
		warn(fmt.Errorf("a message caused a panic: %v\n%s", p, debug.Stack()))
		return status.Error(codes.Internal, "the coordinator failed to handle a message")
	})
	s.Server = grpc.NewServer(
		grpc.Creds(transportCredentials(over, config, s.Refusals, hold)),
		grpc.ConnectionTimeout(HelloTimeout),
		grpc.MaxRecvMsgSize(wire.MaxMessage),
		grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(wire.MaxHeader),
		grpc.ReadBufferSize(readBufferSize(config)),
		grpc.WriteBufferSize(wire.BufferSize),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(wire.Window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * wire.PingAfter, Time: wire.PingAfter, Timeout: 10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(recovered), auth.StreamServerInterceptor(authorize), limitStreams),
		grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(recovered), auth.UnaryServerInterceptor(authorize)),
	)
	return s
}

// readBufferSize spares a connection with TLS a buffer: TLS has one of its own.
func readBufferSize(config *tls.Config) int {
	if config == nil {
		return wire.BufferSize
	}
	return 0
}

// Serve serves at l until done is closed.
func (s *Server) Serve(l net.Listener, done <-chan struct{}) error {
	defer s.endHandshakes()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-done
		s.endHandshakes()
		limit := time.AfterFunc(lastAnswerTimeout, s.Stop)
		s.GracefulStop()
		limit.Stop()
	}()
	if err := s.Server.Serve(listener{l}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("cannot accept agents at %v: %w", l.Addr(), err)
	}
	<-ended
	return nil
}

// Local says that other machines cannot reach an address.
func Local(a net.Addr) bool {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	return a.Network() == "unix" || a.Network() == "bufconn"
}
