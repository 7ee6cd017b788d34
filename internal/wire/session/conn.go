package session

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// Conn is an agent's connection to a coordinator: gRPC over a network, or the coordinator itself if
// it is in this process. Messages belong to the receiver once they are sent.
type Conn interface {
	pb.RendezvousClient
	// LocalAddr is this node's address on the connection; the zero value if there is none.
	LocalAddr() netip.Addr
	// Close ends the connection at once, with all of its streams.
	Close() error
}

// network is gRPC over a connection.
type network struct {
	pb.RendezvousClient
	// conn is the connection, below TLS.
	conn   net.Conn
	client *grpc.ClientConn
}

func (n *network) LocalAddr() netip.Addr {
	at, _ := netip.ParseAddrPort(n.conn.LocalAddr().String()) // a connection in memory has no address
	return at.Addr().Unmap()
}

// Close ends the connection first, because gRPC would wait for last messages.
func (n *network) Close() error {
	err := n.conn.Close()
	if n.client != nil {
		_ = n.client.Close() // it is closed only once
	}
	return err
}

// reach connects to the coordinator's machine.
func (d dialer) reach(ctx context.Context, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := d.Dial(ctx)
	if err != nil {
		if why := ports.Why(err); why != "" {
			err = fmt.Errorf("%w (%s)", err, why)
		}
		return nil, &unreachableError{fmt.Errorf("cannot reach the coordinator at %s: %w", d.Target, err)}
	}
	limitUnsent(conn)
	return conn, nil
}

// secure does the TLS handshake.
func (d dialer) secure(ctx context.Context, n *network) (err error) {
	secured := n.conn
	if d.TLS != nil {
		if secured, err = mtls.Handshake(ctx, n.conn, d.TLS); err != nil {
			return mtls.ExplainClient(err, d.Target, d.TLS)
		}
	}
	if n.client, err = client(secured); err != nil {
		return fmt.Errorf("cannot talk to the coordinator at %s: %w", d.Target, err)
	}
	n.RendezvousClient = pb.NewRendezvousClient(n.client)
	return nil
}

// client makes gRPC use an existing connection that is already secure.
func client(conn net.Conn) (*grpc.ClientConn, error) {
	var used atomic.Bool
	use := func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, net.ErrClosed
		}
		return conn, nil
	}
	return grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(use),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: wire.PingAfter, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
		grpc.WithMaxHeaderListSize(wire.MaxHeader),
		grpc.WithReadBufferSize(wire.BufferSize),
		grpc.WithStaticStreamWindowSize(wire.Window),
		grpc.WithStaticConnWindowSize(wire.Window),
		grpc.WithWriteBufferSize(wire.BufferSize),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	)
}

// maxUnsent bounds the unsent bytes of a connection in the kernel: a heartbeat waits behind them.
const maxUnsent = 16 << 10

// limitUnsent limits the unsent data in the kernel's buffers (TCP_NOTSENT_LOWAT, tcp(7)). Otherwise
// megabytes of ranks' output could be in these buffers ahead of heartbeats. On a slow network, the
// heartbeats would be late by more than a lease. The output that waits in gRPC does no harm,
// because gRPC serves each stream in turn.
func limitUnsent(conn net.Conn) {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // if this fails, heartbeats are only slower
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
		})
	}
}
