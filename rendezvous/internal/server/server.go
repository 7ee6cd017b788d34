// Package server is the gRPC server of coordinators and voters, with bounds on everything that a
// peer can make it do.
//
// It limits handshakes, connections, streams and messages, checks who calls, survives panics of
// handlers and reports refused peers.
package server

import (
	"context"
	"crypto/tls"
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

// HelloTimeout bounds the TLS handshake, and also the wait for an agent's first message.
const HelloTimeout = 5 * time.Second

// lastAnswerTimeout bounds the wait for peers to read the last answers, such as a refusal. A peer
// that does not learn the reason keeps asking.
const lastAnswerTimeout = time.Second

// Server serves agents and clients with its registered services. It makes its gRPC server at the
// first connection.
type Server struct {
	Refusals *Refusals
	config   *tls.Config
	warn     func(error)
	hold     HoldFunc
	services []func(grpc.ServiceRegistrar)
}

// New returns a server without services. hold, which may be nil, delays clients before the
// handshake.
func New(config *tls.Config, warn func(error), hold HoldFunc) *Server {
	return &Server{Refusals: newRefusals(warn), config: config, warn: warn, hold: hold}
}

// RegisterService registers a service (grpc.ServiceRegistrar).
func (s *Server) RegisterService(d *grpc.ServiceDesc, of any) {
	s.services = append(s.services, func(r grpc.ServiceRegistrar) { r.RegisterService(d, of) })
}

// recovery turns a handler's panic into an error.
func (s *Server) recovery() recovery.Option {
	return recovery.WithRecoveryHandler(func(p any) error {
		s.warn(fmt.Errorf("a message caused a panic: %v\n%s", p, debug.Stack()))
		return status.Error(codes.Internal, "the coordinator failed to handle a message")
	})
}

// server returns a gRPC server whose handshakes end when over ends.
func (s *Server) server(over context.Context) *grpc.Server {
	recovered := s.recovery()
	srv := grpc.NewServer(
		grpc.Creds(transportCredentials(over, s.config, s.Refusals, s.hold)),
		grpc.ConnectionTimeout(HelloTimeout),
		grpc.MaxRecvMsgSize(wire.MaxMessage),
		grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(wire.MaxHeader),
		grpc.ReadBufferSize(readBufferSize(s.config)),
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
	for _, register := range s.services {
		register(srv)
	}
	return srv
}

// readBufferSize returns 0, which means no buffer, for connections with TLS, because TLS has its
// own buffer.
func readBufferSize(config *tls.Config) int {
	if config == nil {
		return wire.BufferSize
	}
	return 0
}

// Serve serves at l until done is closed.
func (s *Server) Serve(l net.Listener, done <-chan struct{}) error {
	first := await(l, done)
	if first == nil && isClosed(done) {
		return nil
	}
	// If await's Accept has failed, gRPC calls Accept again and decides what to do about its error.
	rest := &resumed{Listener: l, first: first}
	defer rest.giveUp()
	over, end := context.WithCancel(context.Background())
	defer end()
	srv := s.server(over)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-done
		end()
		limit := time.AfterFunc(lastAnswerTimeout, srv.Stop)
		srv.GracefulStop()
		limit.Stop()
	}()
	if err := srv.Serve(listener{rest}); err != nil && !isClosed(done) {
		return fmt.Errorf("cannot accept agents at %v: %w", l.Addr(), err)
	}
	<-ended
	return nil
}

// await accepts the first connection. It returns nil if Accept fails. It closes the listener if
// done is closed first.
func await(l net.Listener, done <-chan struct{}) net.Conn {
	came, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-done:
			_ = l.Close() // Accept reports the end
		case <-came:
		}
	}()
	conn, err := l.Accept()
	close(came)
	<-closed
	if err != nil {
		return nil
	}
	return conn
}

// giveUp closes the first connection if gRPC has not taken it.
func (l *resumed) giveUp() {
	if l.first != nil {
		_ = l.first.Close() // there is no message for its peer
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// resumed is a listener that has already accepted its first connection.
type resumed struct {
	net.Listener
	first net.Conn
}

// Accept is called by only one goroutine.
func (l *resumed) Accept() (conn net.Conn, err error) {
	if conn, l.first = l.first, nil; conn != nil {
		return conn, nil
	}
	return l.Listener.Accept()
}

// Local reports whether an address cannot be reached from other machines.
func Local(a net.Addr) bool {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	return a.Network() == "unix" || a.Network() == "bufconn"
}
