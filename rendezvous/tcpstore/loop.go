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
	// readBuffer is what one read takes at most, in bytes: all clients share the buffer.
	readBuffer = 64 << 10
	// maxEvents bounds the clients served, and maxAccepts those taken, before the loop looks for others.
	maxEvents  = 256
	maxAccepts = 64
	// acceptPause follows a failure to take a client, such as too many open files.
	acceptPause = 100 * time.Millisecond
)

// loop owns a store. It is used by one goroutine, but for bell.
type loop struct {
	options  Options
	addr     netip.AddrPort
	table    *table
	audit    audit
	tasks    <-chan func(*loop)
	bell     bell
	epoll    int
	listener int
	over     bool

	conns map[int]*conn
	// up is the store that this one is a proxy of; nil if it is the store itself.
	up *uplink
	// told are the proxies that have news to get.
	told []*conn
	// changed says that the status is not what it was when the last change was told.
	changed bool
	// late has the clients that owe the rest of a request or the taking of a reply, the most urgent first.
	late list.List
	// silent has the clients that have not said anything yet, the first that came first.
	silent list.List
	// deaf is until when no client is taken; zero if they are.
	deaf time.Time

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
		loop.up, err = dialUp(loop, o.Root)
	}
	if err != nil {
		loop.close()
		loop.bell.close()
		return nil, err
	}
	return loop, nil
}

// takeOver makes a listener's socket the store's own. What is set on it here, every connection inherits.
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
	return fd, errors.Join(lively(fd), l.Close())
}

// lively has a connection send at once, and notice within three minutes that the other end is gone.
func lively(fd int) (err error) {
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
		l.hurry()
		l.finish()
		l.tell(changes)
	}
}

// finish sends at the end of a round what has come together for proxies, or for the store.
func (l *loop) finish() {
	for i := 0; i < len(l.told); i++ { // a proxy that is dropped may give news to others
		if c := l.told[i]; l.conns[c.fd] == c && len(c.link.news) > 0 {
			news := c.link.news
			c.link.news = nil
			l.drop(c, c.deliver([][]byte{news}, cap(news)))
		}
	}
	l.told = l.told[:0]
	if l.up != nil {
		l.up.flush()
	}
}

// tell says at the end of a round that the status changed, unless the last change it told has yet to be received.
func (l *loop) tell(changes chan<- struct{}) {
	if !l.changed {
		return
	}
	l.changed = false
	if l.up != nil {
		l.up.changed()
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
	case l.up != nil && fd == l.up.fd:
		l.up.ready(events)
	case fd == l.bell.fd:
		l.bell.quiet()
		for len(l.tasks) > 0 {
			(<-l.tasks)(l)
		}
	case c == nil: // dropped by what came before in this round
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
			l.deaf = time.Now().Add(acceptPause)
			_ = l.watch(unix.EPOLL_CTL_MOD, l.listener, 0) // it is in the set, so this cannot fail
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
		l.drop(c, errors.New("it is no node of the job"))
		return
	}
	if err := l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
		l.drop(c, err)
		return
	}
	l.changed = true
	l.drop(c, c.readable()) // its greeting is often there already
}

// total counts the connections of all stores of this process.
var total atomic.Int64

// reserved are the files of this process that are no connections of stores: of ranks' output, above all.
const reserved = 1024

// makeRoom disconnects who has been silent for longest, if it was for long and there is no room for one more: a client of torch says
// something at once, or is of a version that may first do so much later.
func (l *loop) makeRoom() {
	if l.silent.Len() == 0 || l.full(1) == nil {
		return
	}
	c := l.silent.Front().Value.(*conn)
	if silence := time.Since(c.came); silence > l.options.Patience {
		l.drop(c, fmt.Errorf("it has said nothing for %v, and others want to come", silence.Round(time.Second)))
	}
}

// full says that there are too many connections, with more to come.
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

// errGone is the end of a client that nobody need know of.
var errGone = errors.New("it went away")

// drop disconnects a client for a reason; nil is none.
func (l *loop) drop(c *conn, why error) {
	if why == nil || l.conns[c.fd] != c {
		return
	}
	delete(l.conns, c.fd)
	c.spoke()
	total.Add(-1)
	l.changed = true
	unix.Close(c.fd)
	c.onTime()
	l.table.budget.give(c.booked)
	if !errors.Is(why, errGone) {
		l.warn(c.peer, fmt.Errorf("the store at %v disconnected %v: %w", l.addr, c.peer, why))
	}
	switch {
	case c.link != nil:
		c.unlink()
	case c.wait != nil && l.up != nil:
		l.up.leave(c.wait, false)
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

// patience is how long to wait for events, in milliseconds, -1 for ever.
func (l *loop) patience() int {
	next := l.deaf
	if e := l.late.Front(); e != nil && (next.IsZero() || e.Value.(*conn).due.Before(next)) {
		next = e.Value.(*conn).due
	}
	if l.up != nil {
		if at := l.up.next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return -1
	}
	return int(max(0, time.Until(next)/time.Millisecond+1))
}

// hurry disconnects who is too late.
func (l *loop) hurry() {
	if l.late.Len() == 0 && l.deaf.IsZero() && l.up == nil {
		return
	}
	now := time.Now()
	if l.up != nil {
		l.up.hurry(now)
	}
	for e := l.late.Front(); e != nil && now.After(e.Value.(*conn).due); e = l.late.Front() {
		c := e.Value.(*conn)
		l.drop(c, c.tooLate())
	}
	if !l.deaf.IsZero() && now.After(l.deaf) {
		l.deaf = time.Time{}
		_ = l.watch(unix.EPOLL_CTL_MOD, l.listener, unix.EPOLLIN) // it is in the set, so this cannot fail
	}
}

func (l *loop) warn(about netip.AddrPort, err error) {
	if l.options.Warn != nil && l.audit.due(about.Addr(), time.Now()) {
		l.options.Warn(err)
	}
}

func (l *loop) close() {
	for fd := range l.conns {
		unix.Close(fd)
	}
	total.Add(int64(-len(l.conns)))
	if l.up != nil {
		unix.Close(l.up.fd)
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

// bell wakes the loop. Any goroutine may ring it.
type bell struct{ fd int }

func newBell() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return bell{fd}, err
}

func (b bell) ring()  { _, _ = syscall.Write(b.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // full means rung already
func (b bell) quiet() { _, _ = syscall.Read(b.fd, make([]byte, 8)) }
func (b bell) close() { unix.Close(b.fd) }
