package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// uplink is a proxy's one connection to its store. It belongs to the loop that serves the proxy's
// clients.
//
// The store answers in the order of the requests, and a client's next request is not handled before
// its last one was answered. Every reply therefore says, as the store's own would, that the
// client's earlier requests were executed. Cached values are only used once the store has said,
// after the client asked, that they still hold; so no client gets an older value than the store
// would have given it.
type uplink struct {
	loop *loop
	fd   int
	root netip.AddrPort
	// connected and greeted say how far the connection is, and patience is the deadline for that.
	connected, greeted bool
	patience           time.Time
	// out has the requests, and sent is how many of its bytes were sent. in has the beginning of a
	// message.
	out  []byte
	sent int
	in   []byte
	// writing says that the connection is watched for room to write.
	writing bool
	// asked are the requests that have yet to be answered, the oldest first.
	asked []question
	// numbered counts clients and waits. client is the one that was last identified to the store.
	numbered, client uint32
	// stalled are the clients that are not read until out is sent.
	stalled []*conn

	cache cache
	// queue has the reads for the next round. readRound is the round under way, or nil.
	queue     []*keyRead
	readRound *readRound
	// version and removals are what the store has said last, see [changes] and [table].
	version, removals uint64
	// holds are by number, and groups by the keys that several clients wait for together.
	holds  map[uint32]*storeWait
	groups map[string]*storeWait
	// due is when the store must get the list of clients; zero if it has not changed.
	due time.Time
}

// question is a request under way: a client's, a wait, or a round.
type question struct {
	client    *conn
	storeWait *storeWait
	round     bool
}

const (
	// maxBacklog is how many bytes may wait for the store before clients are not read.
	maxBacklog = 1 << 20
	// clientListEvery is how soon after a change the store gets the list of clients.
	clientListEvery = time.Second
	// maxMessage bounds a message of the store, at most a list of all keys.
	maxMessage = 4 << 30
)

// dialRoot begins to connect to a store without waiting: clients may come meanwhile.
func dialRoot(l *loop, root netip.AddrPort) (*uplink, error) {
	fd, err := connect(root)
	var u *uplink
	if err == nil {
		u, err = newUplink(l, fd, root)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the store at %v: %w", root, err)
	}
	return u, nil
}

// newUplink returns the uplink of a connection under way.
func newUplink(l *loop, fd int, root netip.AddrPort) (*uplink, error) {
	u := &uplink{
		loop: l, fd: fd, root: root, patience: time.Now().Add(l.options.Patience), writing: true,
		cache: newCache(), holds: map[uint32]*storeWait{}, groups: map[string]*storeWait{}, out: []byte(proxyGreeting),
	}
	if err := l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLOUT); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return u, nil
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
	err = setKeepalive(fd)
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

// ready handles events of the connection. The proxy ends with it.
func (u *uplink) ready(events uint32) {
	var err error
	if !u.connected {
		err = u.connect()
	}
	if err == nil && events&unix.EPOLLOUT != 0 {
		err = u.send()
	}
	if err == nil && events&^unix.EPOLLOUT != 0 {
		err = u.receive()
	}
	if err != nil {
		u.fail(err)
	}
}

func (u *uplink) connect() error {
	code, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	u.connected = err == nil
	return err
}

// fail ends the proxy. A warning is due only if clients are connected.
func (u *uplink) fail(err error) {
	l := u.loop
	if len(l.conns) > 0 && !l.over {
		l.warn(l.addr, fmt.Errorf("the proxy at %v must end (open connections: %d): the store at %v: %w", l.addr, len(l.conns), u.root, err))
	}
	l.over = true
}

// flush sends what the clients have asked for since the last flush.
func (u *uplink) flush() {
	for u.round(); u.connected && !u.writing && u.sent < len(u.out); u.round() {
		if err := u.send(); err != nil {
			u.fail(err)
			return
		}
	}
}

// expire does what is due.
func (u *uplink) expire(now time.Time) {
	if !u.greeted && now.After(u.patience) {
		u.fail(errors.New("it does not answer"))
	}
	if u.greeted && !u.due.IsZero() && now.After(u.due) {
		u.due = time.Time{}
		u.request(opClients, u.clientList())
	}
}

// send sends as much as the store takes.
func (u *uplink) send() error {
	for u.sent < len(u.out) {
		n, err := unix.Write(u.fd, u.out[u.sent:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return u.watch(true)
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		}
		u.sent += max(n, 0)
	}
	if u.out, u.sent = u.out[:0], 0; cap(u.out) > maxBacklog {
		u.out = nil
	}
	err := u.watch(false)
	stalled := u.stalled
	u.stalled = nil
	for _, c := range stalled {
		c.stalled = false
		c.resume()
	}
	return err
}

func (u *uplink) watch(writing bool) error {
	if u.writing == writing {
		return nil
	}
	u.writing = writing
	events := uint32(unix.EPOLLIN)
	if writing {
		events |= unix.EPOLLOUT
	}
	return u.loop.watch(unix.EPOLL_CTL_MOD, u.fd, events)
}

// receive reads once.
func (u *uplink) receive() error {
	buf := u.loop.buffer[:]
	n, err := unix.Read(u.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err == nil && n == 0:
		return errors.New("it has ended")
	case err != nil:
		return err
	}
	data := buf[:n]
	if len(u.in) > 0 {
		u.in = append(u.in, data...)
		data = u.in
	}
	rest, err := u.handleMessages(data)
	if len(u.in) == 0 || len(rest) < len(data) {
		rest = append([]byte(nil), rest...)
	}
	u.in = rest
	return err
}

// handleMessages handles the complete messages, and returns the rest.
func (u *uplink) handleMessages(data []byte) (rest []byte, err error) {
	for len(data) >= headLength {
		n := binary.LittleEndian.Uint64(data[1:])
		if n > maxMessage {
			return nil, fmt.Errorf("it sent a message of %d bytes", n)
		}
		if uint64(len(data)-headLength) < n {
			break
		}
		if err := u.handleMessage(data[0], data[headLength:headLength+int(n)]); err != nil {
			return nil, err
		}
		data = data[headLength+int(n):]
	}
	return data, nil
}

// errProtocol is a store that breaks the protocol: perhaps another version of golaunch.
var errProtocol = errors.New("it sent a message that this golaunch does not know: with proxies, all nodes of a job need the same version")

func (u *uplink) handleMessage(kind byte, b []byte) error {
	m := message{b: b}
	switch {
	case !u.greeted:
		u.greeted = kind == msgHello
		if !u.greeted {
			return errProtocol
		}
	case kind == msgReply || kind == msgRefused:
		if len(u.asked) == 0 {
			return errProtocol
		}
		asked := u.asked[0]
		if u.asked = u.asked[1:]; len(u.asked) == 0 {
			u.asked = nil
		}
		u.answered(asked, kind == msgRefused, &m)
	case kind == msgExpel:
		number := m.int4B()
		for _, c := range u.loop.conns { // a linear search is fine: a full store is rare
			if c.number == number {
				u.loop.drop(c, errors.New(string(m.b)))
			}
		}
	case kind == msgEnded:
		u.ended(m.int4B(), m.byte() != 0)
	default:
		return errProtocol
	}
	if m.short {
		return errProtocol
	}
	return nil
}

// answered handles the reply to a request, or its refusal.
func (u *uplink) answered(a question, refused bool, m *message) {
	switch {
	case a.round:
		u.finishRound(m)
	case a.storeWait != nil && refused:
		u.refused(a.storeWait, errors.New(string(m.b)))
	case a.storeWait != nil:
		over := m.byte() != 0
		u.confirmed(a.storeWait, over, uint64(m.int8B()))
	case u.loop.conns[a.client.fd] != a.client:
	case refused:
		u.loop.drop(a.client, errors.New(string(m.b)))
	default:
		a.client.answer(append([]byte(nil), m.b...))
	}
}

// message is read from its beginning. Missing bytes read as zero and set short.
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

func (m *message) frame() frame {
	if len(m.b) < 8 {
		return m.take(-1)
	}
	n := binary.LittleEndian.Uint64(m.b)
	if n > uint64(len(m.b)-8) {
		return m.take(-1)
	}
	return m.take(8 + int(n))
}
