package tcpstore

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// listener is the socket where clients come. A paused one is not watched.
type listener struct {
	fd int
	// pausedUntil is zero if it is not paused.
	pausedUntil time.Time
}

// acceptPause follows a failure to accept a client, such as too many open files.
const acceptPause = 100 * time.Millisecond

func (l *listener) pause(p *poller) {
	l.pausedUntil = time.Now().Add(acceptPause)
	_ = p.modify(l.fd, 0) // cannot fail: it is in the set
}

// resume ends a pause that is over.
func (l *listener) resume(p *poller, now time.Time) {
	if !l.pausedUntil.IsZero() && now.After(l.pausedUntil) {
		l.pausedUntil = time.Time{}
		_ = p.modify(l.fd, unix.EPOLLIN) // cannot fail: it is in the set
	}
}

// takeOver duplicates a listener's socket for the store. Connections inherit its options.
func takeOver(l net.Listener) (fd int, err error) {
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
	return fd, errors.Join(setKeepalive(fd), l.Close())
}

// setKeepalive has a connection send at once, and notice within three minutes that the peer is
// gone.
func setKeepalive(fd int) (err error) {
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

func addrPortOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
