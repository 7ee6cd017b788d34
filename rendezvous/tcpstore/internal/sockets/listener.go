package sockets

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Listener is the socket that clients connect to. A paused Listener is not watched.
type Listener struct {
	FD int
	// PausedUntil is zero if the Listener is not paused.
	PausedUntil time.Time
}

// acceptPause is the pause after a failure to accept a client, for example because too many files
// are open.
const acceptPause = 100 * time.Millisecond

// Pause stops watching for clients for a while.
func (l *Listener) Pause(p *Poller) {
	l.PausedUntil = time.Now().Add(acceptPause)
	_ = p.Modify(l.FD, 0) // cannot fail: the socket is in the set
}

// Resume ends a pause that is over.
func (l *Listener) Resume(p *Poller, now time.Time) {
	if !l.PausedUntil.IsZero() && now.After(l.PausedUntil) {
		l.PausedUntil = time.Time{}
		_ = p.Modify(l.FD, unix.EPOLLIN) // cannot fail: the socket is in the set
	}
}

// TakeOver duplicates a listener's socket for the store, and closes the listener. Connections
// inherit the socket's options.
func TakeOver(l net.Listener) (fd int, err error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return -1, errors.New("it needs a TCP listener")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		return -1, errors.Join(e, err)
	}
	return fd, errors.Join(SetKeepalive(fd), l.Close())
}

// SetKeepalive makes a connection send small messages at once, and notice within three minutes that
// the peer is gone.
func SetKeepalive(fd int) (err error) {
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9},
	} {
		err = errors.Join(err, unix.SetsockoptInt(fd, o.level, o.name, o.value))
	}
	return err
}

// AddrPort returns the address of a socket's peer.
func AddrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
