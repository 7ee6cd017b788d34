package tcpstore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/sockets"
)

const (
	// maxEvents bounds the clients that are served in one round of the loop. maxAccepts bounds the
	// clients that are accepted in one round.
	maxEvents  = 256
	maxAccepts = 64
)

// loop owns a store. One goroutine uses it, except for the bell.
type loop struct {
	options  Options
	addr     netip.AddrPort
	table    *table
	warnings warningLimit
	tasks    <-chan func(*loop)
	poller   sockets.Poller
	listener sockets.Listener
	over     bool

	conns map[int]*conn
	// uplink leads to the store that this store is a proxy of. It is nil if this store is no proxy.
	uplink *uplink
	// withNews are the proxies for which this round has collected messages.
	withNews []*conn
	// changed says that the status has changed since the last signal.
	changed   bool
	deadlines deadlines

	buffer [protocol.ReadBuffer]byte
	out    output
}

func newLoop(l net.Listener, o Options, tasks <-chan func(*loop)) (*loop, error) {
	fd, err := sockets.TakeOver(l)
	if err != nil {
		return nil, err
	}
	loop := &loop{
		options: o, addr: addrPort(l.Addr()), table: newTable(o.MaxBytes), tasks: tasks, listener: sockets.Listener{FD: fd}, conns: map[int]*conn{},
		deadlines: deadlines{patience: o.Patience},
	}
	if loop.poller, err = sockets.NewPoller(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	err = loop.poller.Add(fd, unix.EPOLLIN)
	if err == nil && o.Root.IsValid() {
		loop.uplink, err = dialRoot(loop, o.Root)
	}
	if err != nil {
		loop.close()
		loop.poller.Bell.Close()
		return nil, err
	}
	return loop, nil
}

func (l *loop) run(changes chan<- struct{}) {
	defer l.close()
	events := make([]unix.EpollEvent, maxEvents)
	for !l.over {
		came, err := l.poller.Wait(events, l.patience())
		if err != nil {
			l.warn(l.addr, fmt.Errorf("the store at %v must end: %w", l.addr, err))
			return
		}
		for _, e := range came {
			l.serve(int(e.Fd), e.Events)
		}
		l.expire()
		l.flushProxies()
		l.signalChange(changes)
	}
}

// flushProxies sends what this round has collected for proxies. If this store is a proxy, it also
// sends what the round has collected for its store.
func (l *loop) flushProxies() {
	for i := 0; i < len(l.withNews); i++ { // dropping a proxy may cause messages for others
		if c := l.withNews[i]; !l.isGone(c) && len(c.proxyLink.news) > 0 {
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

// signalChange signals that the status has changed. It sends no signal if an earlier signal still
// waits.
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
	case fd == l.listener.FD:
		l.accept()
	case l.uplink != nil && fd == l.uplink.link.fd:
		l.uplink.ready(events)
	case fd == l.poller.Bell.FD:
		l.poller.Bell.Quiet()
		for len(l.tasks) > 0 {
			(<-l.tasks)(l)
		}
	case c == nil: // the client was dropped in this round
	case events&unix.EPOLLOUT != 0:
		l.drop(c, c.writable())
	default:
		l.drop(c, c.readable())
	}
}

func (l *loop) accept() {
	for range maxAccepts {
		fd, from, err := unix.Accept4(l.listener.FD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.admit(fd, from)
		case errors.Is(err, unix.EAGAIN):
			return
		case !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EINTR):
			l.warn(l.addr, fmt.Errorf("the store at %v cannot take clients: %w", l.addr, err))
			l.listener.Pause(&l.poller)
			return
		}
	}
}

func (l *loop) admit(fd int, from unix.Sockaddr) {
	l.makeRoom()
	c := &conn{loop: l, fd: fd, peer: sockets.AddrPort(from), watch: sockets.WatchedFor(unix.EPOLLIN)}
	l.deadlines.admit(c)
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
	if err := l.poller.Add(fd, unix.EPOLLIN); err != nil {
		l.drop(c, err)
		return
	}
	l.changed = true
	l.drop(c, c.readable()) // the greeting has often arrived already
}

// total counts the connections of all stores in this process.
var total atomic.Int64

// reserved is how many of the process's descriptors the stores leave for other uses, above all for
// the output of ranks.
const reserved = 1024

// makeRoom disconnects the client that has been silent for longest, if its silence exceeds
// Options.Patience and there is no room for another client. A client of torch sends something at
// once. Before version 2.1, though, torch opens two connections, and one may stay silent.
func (l *loop) makeRoom() {
	if c, silence := l.deadlines.mostSilent(); silence > l.options.Patience && l.full(1) != nil {
		l.drop(c, fmt.Errorf("it has sent nothing for %v, and other clients wait for a place", silence.Round(time.Second)))
	}
}

// full returns why there would be too many connections with a number of further ones, more; nil if
// there is room.
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

// isGone reports whether a client was dropped.
func (l *loop) isGone(c *conn) bool { return l.conns[c.fd] != c }

// errClosed is the reason for a disconnection about which the store does not warn.
var errClosed = errors.New("it went away")

// drop disconnects a client for a reason. If the reason is nil, it keeps the client.
func (l *loop) drop(c *conn, why error) {
	if why == nil || l.isGone(c) {
		return
	}
	delete(l.conns, c.fd)
	l.deadlines.markSpoken(c)
	total.Add(-1)
	l.changed = true
	unix.Close(c.fd)
	l.deadlines.clear(c)
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

// release answers clients whose wait is over.
func (l *loop) release(released []*waiter) {
	for _, w := range released {
		l.drop(w.conn, w.conn.released(w))
	}
}

// patience returns how long to wait for events, in milliseconds; -1 means forever.
func (l *loop) patience() int {
	next := earlier(l.listener.PausedUntil, l.deadlines.next())
	if l.uplink != nil {
		next = earlier(next, l.uplink.next())
	}
	if next.IsZero() {
		return -1
	}
	return int(max(0, time.Until(next)/time.Millisecond+1))
}

// earlier returns the earlier of two times. The zero time stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// expire disconnects clients whose deadline has passed, and does everything else that is due.
func (l *loop) expire() {
	if l.deadlines.late.Len() == 0 && l.listener.PausedUntil.IsZero() && l.uplink == nil {
		return
	}
	now := time.Now()
	if l.uplink != nil {
		l.uplink.expire(now)
	}
	for c := l.deadlines.firstLate(now); c != nil; c = l.deadlines.firstLate(now) {
		l.drop(c, c.deadlineError())
	}
	l.listener.Resume(&l.poller, now)
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
		unix.Close(l.uplink.link.fd)
	}
	unix.Close(l.listener.FD)
	l.poller.Close()
}
