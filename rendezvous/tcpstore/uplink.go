package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// uplink is a proxy's one connection to its store. It belongs to the loop that serves the proxy's
// clients.
//
// The store answers requests in order. The proxy handles a client's next request only after the
// previous one was answered. So every reply shows, as the store's own reply would, that the store
// has executed the client's earlier requests. The proxy uses a cached value only if the store,
// after the client asked, has confirmed that the value still holds. So no client gets an older
// value than the store would have given it.
type uplink struct {
	loop *loop
	link storeLink
	// asked are the requests that the store has not answered yet, the oldest first.
	asked []question
	// numbered is the last number that was given to a client or a wait. client is the client that
	// the proxy has last identified to the store.
	numbered, client uint32
	// stalled are the clients from which the proxy reads nothing until all requests are sent.
	stalled []*conn
	reads   reads
	waits   storeWaits
	// due is when the proxy must send the list of clients to the store. It is zero if the list has
	// not changed.
	due time.Time
}

// question is what the store has to answer: a client's request, a wait, or a round.
type question struct {
	client    *conn
	storeWait *storeWait
	round     bool
}

const (
	// maxBacklog is how many bytes may wait for the store before the proxy stops reading its
	// clients.
	maxBacklog = 1 << 20
	// clientListEvery is how soon after a change the proxy sends the list of clients.
	clientListEvery = time.Second
	// maxMessage bounds a message from the store. The longest message is a list of all keys.
	maxMessage = 4 << 30
)

// dialRoot begins to connect to a store. It does not wait for the connection, because clients may
// already connect to the proxy.
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

// newUplink returns an uplink whose connection is still being made.
func newUplink(l *loop, fd int, root netip.AddrPort) (*uplink, error) {
	u := &uplink{
		loop: l, reads: reads{cache: newCache()}, waits: storeWaits{byNumber: map[uint32]*storeWait{}, byKeys: map[string]*storeWait{}},
		link: storeLink{poller: &l.poller, fd: fd, root: root, patience: time.Now().Add(l.options.Patience), writing: true, out: []byte(protocol.ProxyGreeting)},
	}
	if err := l.poller.Add(fd, unix.EPOLLIN|unix.EPOLLOUT); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return u, nil
}

// ready handles events of the connection to the store. The proxy ends when the connection ends.
func (u *uplink) ready(events uint32) {
	var err error
	if !u.link.connected {
		err = u.link.finishConnect()
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

// fail ends the proxy. It warns only if clients are connected.
func (u *uplink) fail(err error) {
	l := u.loop
	if len(l.conns) > 0 && !l.over {
		l.warn(l.addr, fmt.Errorf("the proxy at %v must end (open connections: %d): the store at %v: %w", l.addr, len(l.conns), u.link.root, err))
	}
	l.over = true
}

// flush sends the clients' requests since the last flush.
func (u *uplink) flush() {
	for u.round(); u.link.connected && !u.link.writing && u.link.backlog() > 0; u.round() {
		if err := u.send(); err != nil {
			u.fail(err)
			return
		}
	}
}

// expire handles the deadlines that have passed.
func (u *uplink) expire(now time.Time) {
	if !u.link.greeted && now.After(u.link.patience) {
		u.fail(errors.New("it does not answer"))
	}
	if u.link.greeted && !u.due.IsZero() && now.After(u.due) {
		u.due = time.Time{}
		u.link.request(protocol.OpClients, u.clientList())
	}
}

// send sends as much as the store takes. Once all is sent, it continues with the stalled clients.
func (u *uplink) send() error {
	if all, err := u.link.send(); err != nil || !all {
		return err
	}
	stalled := u.stalled
	u.stalled = nil
	for _, c := range stalled {
		c.upstream.stalled = false
		c.resume()
	}
	return nil
}

// receive reads from the store once, and handles the messages that are complete.
func (u *uplink) receive() error {
	data, err := u.link.read(u.loop.buffer[:])
	if err != nil || len(data) == 0 {
		return err
	}
	rest, err := u.handleMessages(data)
	u.link.keep(rest, len(rest) < len(data))
	return err
}

// handleMessages handles the complete messages, and returns the rest.
func (u *uplink) handleMessages(data []byte) (rest []byte, err error) {
	for len(data) >= protocol.HeadLength {
		n := binary.LittleEndian.Uint64(data[1:])
		if n > maxMessage {
			return nil, fmt.Errorf("it sent a message of %d bytes", n)
		}
		if uint64(len(data)-protocol.HeadLength) < n {
			break
		}
		if err := u.handleMessage(data[0], data[protocol.HeadLength:protocol.HeadLength+int(n)]); err != nil {
			return nil, err
		}
		data = data[protocol.HeadLength+int(n):]
	}
	return data, nil
}

// errProtocol is the error for a store that does not follow the protocol, perhaps because the store
// runs another version of golaunch.
var errProtocol = errors.New("it sent a message that this golaunch does not know: with proxies, all nodes of a job need the same version")

func (u *uplink) handleMessage(kind byte, b []byte) error {
	m := message{b: b}
	switch {
	case !u.link.greeted:
		u.link.greeted = kind == protocol.MsgHello
		if !u.link.greeted {
			return errProtocol
		}
	case kind == protocol.MsgReply || kind == protocol.MsgRefused:
		if len(u.asked) == 0 {
			return errProtocol
		}
		asked := u.asked[0]
		if u.asked = u.asked[1:]; len(u.asked) == 0 {
			u.asked = nil
		}
		u.answered(asked, kind == protocol.MsgRefused, &m)
	case kind == protocol.MsgExpel:
		number := m.int4B()
		for _, c := range u.loop.conns { // a linear search is fine: a full store is rare
			if c.upstream.number == number {
				u.loop.drop(c, errors.New(string(m.b)))
			}
		}
	case kind == protocol.MsgEnded:
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
	case u.loop.isGone(a.client):
	case refused:
		u.loop.drop(a.client, errors.New(string(m.b)))
	default:
		a.client.answer(append([]byte(nil), m.b...))
	}
}
