package session

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/test/bufconn"
)

// Pipe returns the two ends of a listener inside this process, for an agent and a coordinator that
// share it.
func Pipe() (net.Listener, func(context.Context) (net.Conn, error)) {
	l := bufconn.Listen(64 << 10)
	return l, l.DialContext
}

// maxUnsent bounds the unsent bytes of a connection in the kernel: a heartbeat waits behind them.
const maxUnsent = 16 << 10

// limitUnsent keeps the output of ranks from filling the kernel's buffers, of up to megabytes,
// ahead of heartbeats: on a slow network these would be late by more than a lease
// (TCP_NOTSENT_LOWAT, tcp(7)). gRPC serves each stream in turn.
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
