package tcpstore

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/sockets"
)

// storeLink carries a proxy's requests to its store, and the messages of the store back.
type storeLink struct {
	poller *sockets.Poller
	fd     int
	root   netip.AddrPort
	// connected and greeted say how far the connection has progressed. patience is the deadline for
	// reaching both states.
	connected, greeted bool
	patience           time.Time
	// out has the requests for the store. sent is how many bytes of out were sent. in has the
	// beginning of an incomplete message of the store.
	out  []byte
	sent int
	in   []byte
	// writing says that the poller watches the connection for room to write.
	writing bool
}

// connect begins a connection.
func connect(root netip.AddrPort) (fd int, err error) {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(root.Port()), Addr: [4]byte{}})
	if addr := root.Addr().Unmap(); addr.Is4() {
		to.(*unix.SockaddrInet4).Addr = addr.As4()
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(root.Port()), Addr: addr.As16()}
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	err = sockets.SetKeepalive(fd)
	if err == nil {
		if err = unix.Connect(fd, to); errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func (s *storeLink) finishConnect() error {
	code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	s.connected = err == nil
	return err
}

// request appends a request to the unsent data.
func (s *storeLink) request(op byte, fields ...[]byte) {
	s.out = append(s.out, op)
	for _, f := range fields {
		s.out = append(s.out, f...)
	}
}

// backlog returns how many bytes wait for the store.
func (s *storeLink) backlog() int { return len(s.out) - s.sent }

// send sends as much as the store takes, and reports whether that was all.
func (s *storeLink) send() (all bool, err error) {
	for s.sent < len(s.out) {
		n, err := unix.Write(s.fd, s.out[s.sent:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, s.watch(true)
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, err
		}
		s.sent += max(n, 0)
	}
	if s.out, s.sent = s.out[:0], 0; cap(s.out) > maxBacklog {
		s.out = nil
	}
	return true, s.watch(false)
}

func (s *storeLink) watch(writing bool) error {
	if s.writing == writing {
		return nil
	}
	s.writing = writing
	events := uint32(unix.EPOLLIN)
	if writing {
		events |= unix.EPOLLOUT
	}
	return s.poller.Modify(s.fd, events)
}

// read reads once into a buffer. It returns the data that has not been handled yet: what keep has
// kept, followed by the new data.
func (s *storeLink) read(buffer []byte) ([]byte, error) {
	n, err := unix.Read(s.fd, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil, nil
	case err == nil && n == 0:
		return nil, errors.New("it has ended")
	case err != nil:
		return nil, err
	}
	if len(s.in) == 0 {
		return buffer[:n], nil
	}
	s.in = append(s.in, buffer[:n]...)
	return s.in, nil
}

// keep keeps the beginning of an incomplete message until the next read. anew says that messages
// before it were handled.
func (s *storeLink) keep(rest []byte, anew bool) {
	if len(s.in) == 0 || anew {
		rest = append([]byte(nil), rest...)
	}
	s.in = rest
}

// message reads the fields of a message in order. Missing bytes read as zero, and set short.
type message struct {
	b     []byte
	short bool
}

func (m *message) take(n int) []byte {
	if n < 0 || n > len(m.b) {
		m.short, m.b = true, nil
		return make([]byte, 8)
	}
	b := m.b[:n]
	m.b = m.b[n:]
	return b
}

func (m *message) byte() byte    { return m.take(1)[0] }
func (m *message) int4B() uint32 { return binary.LittleEndian.Uint32(m.take(4)) }
func (m *message) int8B() int64  { return int64(binary.LittleEndian.Uint64(m.take(8))) }

func (m *message) frame() protocol.Frame {
	if len(m.b) < 8 {
		return m.take(-1)
	}
	n := binary.LittleEndian.Uint64(m.b)
	if n > uint64(len(m.b)-8) {
		return m.take(-1)
	}
	return m.take(8 + int(n))
}
