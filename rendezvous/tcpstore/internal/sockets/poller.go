// Package sockets has non-blocking TCP sockets, and waits for their events.
package sockets

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller waits for events of descriptors. Its bell wakes it from any goroutine.
type Poller struct {
	FD   int
	Bell Bell
}

// NewPoller returns a poller that watches its bell.
func NewPoller() (p Poller, err error) {
	if p.FD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, err
	}
	if p.Bell, err = newBell(); err != nil {
		unix.Close(p.FD)
		return p, err
	}
	if err = p.Add(p.Bell.FD, unix.EPOLLIN); err != nil {
		p.Close()
		p.Bell.Close()
	}
	return p, err
}

// Close closes all but the bell, which others may still ring.
func (p *Poller) Close() { unix.Close(p.FD) }

func (p *Poller) Add(fd int, events uint32) error { return p.control(unix.EPOLL_CTL_ADD, fd, events) }

func (p *Poller) Modify(fd int, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, events)
}

func (p *Poller) control(op, fd int, events uint32) error {
	return unix.EpollCtl(p.FD, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Wait returns the pending events. It waits for them for a number of milliseconds; -1 means
// forever.
func (p *Poller) Wait(events []unix.EpollEvent, patience int) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.FD, events, patience)
	if errors.Is(err, unix.EINTR) {
		err = nil
	}
	return events[:max(n, 0)], err
}

// Watch has the events that a socket is watched for. A muted socket is not watched at all.
type Watch struct {
	events uint32
	muted  bool
}

// WatchedFor returns the Watch of a socket that is watched for events.
func WatchedFor(events uint32) Watch { return Watch{events: events} }

// Mute stops watching a socket.
func (p *Poller) Mute(fd int, w *Watch) error {
	w.muted = true
	return p.control(unix.EPOLL_CTL_DEL, fd, 0)
}

// Unmute watches a socket again.
func (p *Poller) Unmute(fd int, w *Watch) error {
	if !w.muted {
		return nil
	}
	w.muted = false
	return p.Add(fd, w.events)
}

// Watch sets the events that a socket is watched for. A muted socket uses them once it is unmuted.
func (p *Poller) Watch(fd int, w *Watch, events uint32) error {
	w.events = events
	if w.muted {
		return nil
	}
	return p.Modify(fd, events)
}

// Bell wakes the loop from any goroutine.
type Bell struct{ FD int }

func newBell() (Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return Bell{fd}, err
}

func (b Bell) Ring()  { _, _ = syscall.Write(b.FD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // a full descriptor means that the bell has rung already
func (b Bell) Quiet() { _, _ = syscall.Read(b.FD, make([]byte, 8)) }
func (b Bell) Close() { unix.Close(b.FD) }
