package tcpstore

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller waits for events of descriptors. Its bell wakes it from any goroutine.
type poller struct {
	epoll int
	bell  bell
}

func newPoller() (p poller, err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, err
	}
	if p.bell, err = newBell(); err != nil {
		unix.Close(p.epoll)
		return p, err
	}
	if err = p.add(p.bell.fd, unix.EPOLLIN); err != nil {
		p.close()
		p.bell.close()
	}
	return p, err
}

// close closes all but the bell, which others may still ring.
func (p *poller) close() { unix.Close(p.epoll) }

func (p *poller) add(fd int, events uint32) error { return p.control(unix.EPOLL_CTL_ADD, fd, events) }
func (p *poller) modify(fd int, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, events)
}

func (p *poller) control(op, fd int, events uint32) error {
	return unix.EpollCtl(p.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait returns the events that have come, within a number of milliseconds; -1 means for ever.
func (p *poller) wait(events []unix.EpollEvent, patience int) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.epoll, events, patience)
	if errors.Is(err, unix.EINTR) {
		err = nil
	}
	return events[:max(n, 0)], err
}

// watch says which events a client is watched for. muted says that it is not watched at all.
type watch struct {
	events uint32
	muted  bool
}

// mute stops watching a client that has sent something, or is gone, while it is busy.
func (p *poller) mute(c *conn) error {
	c.watch.muted = true
	return p.control(unix.EPOLL_CTL_DEL, c.fd, 0)
}

// unmute watches a client again.
func (p *poller) unmute(c *conn) error {
	if !c.watch.muted {
		return nil
	}
	c.watch.muted = false
	return p.add(c.fd, c.watch.events)
}

// watch sets the events that a client is watched for, once it is watched.
func (p *poller) watch(c *conn, events uint32) error {
	c.watch.events = events
	if c.watch.muted {
		return nil
	}
	return p.modify(c.fd, events)
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
