package tcpstore

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readBuffer is the size of the buffer that all clients share, in bytes.
	readBuffer = 64 << 10
	// maxEvents bounds the clients served, and maxAccepts those accepted, in one round.
	maxEvents  = 256
	maxAccepts = 64
	// acceptPause follows a failure to accept a client, such as too many open files.
	acceptPause = 100 * time.Millisecond
)

// loop owns a store. One goroutine uses it, except for the bell.
type loop struct {
	options  Options
	addr     netip.AddrPort
	table    *table
	warnings warningLimit
	tasks    <-chan func(*loop)
	bell     bell
	epoll    int
	listener int
	over     bool

	conns map[int]*conn
	// uplink leads to the store that this one is a proxy of; nil if it is the store itself.
	uplink *uplink
	// withNews are the proxies that have news to send.
	withNews []*conn
	// changed says that the status has changed since the last signal.
	changed bool
	// late has the clients with a deadline, the earliest first.
	late list.List
	// silent has the clients that have sent nothing yet, the oldest first.
	silent list.List
	// acceptAfter is until when no client is accepted; zero if they are.
	acceptAfter time.Time

	buffer [readBuffer]byte
	out    output
}

func newLoop(l net.Listener, o Options, tasks <-chan func(*loop)) (*loop, error) {
	listener, err := takeOver(l)
	if err != nil {
		return nil, err
	}
	loop := &loop{
		options: o, addr: addrPort(l.Addr()), table: newTable(o.MaxBytes), tasks: tasks, listener: listener, conns: map[int]*conn{},
	}
	if loop.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		if loop.bell, err = newBell(); err == nil {
			err = errors.Join(loop.watch(unix.EPOLL_CTL_ADD, loop.bell.fd, unix.EPOLLIN), loop.watch(unix.EPOLL_CTL_ADD, listener, unix.EPOLLIN))
		}
	}
	if err == nil && o.Root.IsValid() {
		loop.uplink, err = dialRoot(loop, o.Root)
	}
	if err != nil {
		loop.close()
		loop.bell.close()
		return nil, err
	}
	return loop, nil
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

func (l *loop) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (l *loop) run(changes chan<- struct{}) {
	defer l.close()
	events := make([]unix.EpollEvent, maxEvents)
	for !l.over {
		n, err := unix.EpollWait(l.epoll, events, l.patience())
		if err != nil && !errors.Is(err, unix.EINTR) {
			l.warn(l.addr, fmt.Errorf("the store at %v must end: %w", l.addr, err))
			return
		}
		for _, e := range events[:max(n, 0)] {
			l.serve(int(e.Fd), e.Events)
		}
		l.expire()
		l.flushProxies()
		l.signalChange(changes)
	}
}

// flushProxies sends what this round has collected for proxies, or for the store.
func (l *loop) flushProxies() {
	for i := 0; i < len(l.withNews); i++ { // dropping a proxy may cause news for others
		if c := l.withNews[i]; l.conns[c.fd] == c && len(c.proxyLink.news) > 0 {
			news := c.proxyLink.news
			c.proxyLink.news = nil
			l.drop(c, c.deliver([][]byte{news}, cap(news)))
		}
	}
	l.withNews = l.withNews[:0]
	if l.uplink != nil {
		l.uplink.flush()
	}
}

// signalChange tells that the status has changed, unless an earlier signal has yet to be received.
func (l *loop) signalChange(changes chan<- struct{}) {
	if !l.changed {
		return
	}
	l.changed = false
	if l.uplink != nil {
		l.uplink.changed()
	}
	select {
	case changes <- struct{}{}:
	default:
	}
}

func (l *loop) serve(fd int, events uint32) {
	switch c := l.conns[fd]; {
	case fd == l.listener:
		l.accept()
	case l.uplink != nil && fd == l.uplink.fd:
		l.uplink.ready(events)
	case fd == l.bell.fd:
		l.bell.quiet()
		for len(l.tasks) > 0 {
			(<-l.tasks)(l)
		}
	case c == nil: // it was dropped in this round
	case events&unix.EPOLLOUT != 0:
		l.drop(c, c.writable())
	default:
		l.drop(c, c.readable())
	}
}

func (l *loop) accept() {
	for range maxAccepts {
		fd, from, err := unix.Accept4(l.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.admit(fd, from)
		case errors.Is(err, unix.EAGAIN):
			return
		case !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EINTR):
			l.warn(l.addr, fmt.Errorf("the store at %v cannot take clients: %w", l.addr, err))
			l.acceptAfter = time.Now().Add(acceptPause)
			_ = l.watch(unix.EPOLL_CTL_MOD, l.listener, 0) // cannot fail: it is in the set
			return
		}
	}
}

func (l *loop) admit(fd int, from unix.Sockaddr) {
	l.makeRoom()
	c := &conn{loop: l, fd: fd, peer: addrPortOf(from), came: time.Now(), events: unix.EPOLLIN}
	c.silent = l.silent.PushBack(c)
	l.conns[fd] = c
	total.Add(1)
	if err := l.full(0); err != nil {
		l.drop(c, err)
		return
	}
	if allow := l.options.Allow; allow != nil && !allow(c.peer.Addr()) {
		l.drop(c, errors.New("it is not a node of the job"))
		return
	}
	if err := l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
		l.drop(c, err)
		return
	}
	l.changed = true
	l.drop(c, c.readable()) // its greeting is often there already
}

// total counts the connections of all stores in this process.
var total atomic.Int64

// reserved is how many of the process's descriptors stores leave to others, above all to ranks'
// output.
const reserved = 1024

// makeRoom disconnects the client that has been silent for longest, if that is too long and there
// is no room for one more. A client of torch sends something at once, but of its two connections
// before version 2.1 one may not.
func (l *loop) makeRoom() {
	if l.silent.Len() == 0 || l.full(1) == nil {
		return
	}
	c := l.silent.Front().Value.(*conn)
	if silence := time.Since(c.came); silence > l.options.Patience {
		l.drop(c, fmt.Errorf("it has sent nothing for %v, and other clients wait for a place", silence.Round(time.Second)))
	}
}

// full says why there are too many connections, if more came.
func (l *loop) full(more int) error {
	most := 0
	if l.options.MaxClients != nil {
		most = l.options.MaxClients()
	}
	if most > 0 && len(l.conns)+more > most {
		return fmt.Errorf("it has %d connections, and may have no more", most)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		if room := files.Cur - min(reserved, files.Cur/2); uint64(total.Load())+uint64(more) > room {
			return fmt.Errorf("this process has %d connections of stores, of %d files that it may have open (ulimit -n), and may have no more", room, files.Cur)
		}
	}
	return nil
}

// errClosed is the end of a client without a warning.
var errClosed = errors.New("it went away")

// drop disconnects a client for a reason; nil keeps it.
func (l *loop) drop(c *conn, why error) {
	if why == nil || l.conns[c.fd] != c {
		return
	}
	delete(l.conns, c.fd)
	c.markSpoken()
	total.Add(-1)
	l.changed = true
	unix.Close(c.fd)
	c.clearDeadline()
	l.table.budget.give(c.booked)
	if !errors.Is(why, errClosed) {
		l.warn(c.peer, fmt.Errorf("the store at %v disconnected %v: %w", l.addr, c.peer, why))
	}
	switch {
	case c.proxyLink != nil:
		c.releaseProxy()
	case c.wait != nil && l.uplink != nil:
		l.uplink.leave(c.wait, false)
	case c.wait != nil:
		l.release(l.table.leave(c.wait))
	}
}

// release answers those whose wait is over.
func (l *loop) release(released []*waiter) {
	for _, w := range released {
		l.drop(w.conn, w.conn.released(w))
	}
}

// patience is how long to wait for events, in milliseconds; -1 means for ever.
func (l *loop) patience() int {
	next := l.acceptAfter
	if e := l.late.Front(); e != nil && (next.IsZero() || e.Value.(*conn).due.Before(next)) {
		next = e.Value.(*conn).due
	}
	if l.uplink != nil {
		if at := l.uplink.next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return -1
	}
	return int(max(0, time.Until(next)/time.Millisecond+1))
}

// expire disconnects clients whose deadline has passed.
func (l *loop) expire() {
	if l.late.Len() == 0 && l.acceptAfter.IsZero() && l.uplink == nil {
		return
	}
	now := time.Now()
	if l.uplink != nil {
		l.uplink.expire(now)
	}
	for e := l.late.Front(); e != nil && now.After(e.Value.(*conn).due); e = l.late.Front() {
		c := e.Value.(*conn)
		l.drop(c, c.deadlineError())
	}
	if !l.acceptAfter.IsZero() && now.After(l.acceptAfter) {
		l.acceptAfter = time.Time{}
		_ = l.watch(unix.EPOLL_CTL_MOD, l.listener, unix.EPOLLIN) // cannot fail: it is in the set
	}
}

func (l *loop) warn(about netip.AddrPort, err error) {
	if l.options.Warn != nil && l.warnings.due(about.Addr(), time.Now()) {
		l.options.Warn(err)
	}
}

func (l *loop) close() {
	for fd := range l.conns {
		unix.Close(fd)
	}
	total.Add(int64(-len(l.conns)))
	if l.uplink != nil {
		unix.Close(l.uplink.fd)
	}
	unix.Close(l.listener)
	unix.Close(l.epoll)
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

// bell wakes the loop from any goroutine.
type bell struct{ fd int }

func newBell() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return bell{fd}, err
}

func (b bell) ring()  { _, _ = syscall.Write(b.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // full means rung already
func (b bell) quiet() { _, _ = syscall.Read(b.fd, make([]byte, 8)) }
func (b bell) close() { unix.Close(b.fd) }
