package session

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/test/bufconn"
)

// Pipe returns the two ends of a listener inside this process, for an agent and a coordinator that share it.
func Pipe() (net.Listener, func(context.Context) (net.Conn, error)) {
	l := bufconn.Listen(64 << 10)
	return l, l.DialContext
}

// unsent bounds, in bytes, what the kernel keeps of a connection that the network does not take yet: a heartbeat waits behind it.
const unsent = 16 << 10

// hurry keeps the output of ranks from filling the kernel's buffers, of up to megabytes, before heartbeats: on a slow network these would
// be late by more than a lease (TCP_NOTSENT_LOWAT, tcp(7)). gRPC gives each stream its turn.
func hurry(conn net.Conn) {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // where it cannot be set, it is as slow as before
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		})
	}
}
