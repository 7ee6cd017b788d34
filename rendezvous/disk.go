package rendezvous

import (
	"errors"
	"fmt"
	"time"
)

// disk has the coordinator's files written by another goroutine than the coordinator's, one write after the other, so that no
// heartbeat waits for them. It belongs to the coordinator's goroutine.
type disk struct {
	post func(func()) bool
	warn func(error)
	// holds says that a later coordinator goes by what is written, so that nobody may see what comes of an event before.
	holds bool
	// writes have not begun, and next waits for them; now waits for those that have.
	writes, next, now []func()
	busy              bool
	// round counts the writes that were begun together, and hangs says that this one takes too long to be waited for.
	round int
	hangs bool
}

// maxWrite is how long what follows from an event waits for the disk. A server of NFS may restart in less.
var maxWrite = 30 * time.Second

// maxWrites is how much may wait to be written before nobody waits for that any more: some events of each of 10,000 nodes.
const maxWrites = 1 << 16

var errSlowDisk = errors.New("the disk does not keep up")

func (d *disk) write(f func()) {
	d.writes = append(d.writes, f)
	switch {
	case !d.busy:
		d.begin()
	case len(d.writes) == maxWrites:
		d.late(d.round)
	}
}

// then does something that others can see, once all is written that led to it.
func (d *disk) then(f func()) {
	switch {
	case !d.holds || !d.busy || d.hangs:
		f()
	case len(d.writes) > 0:
		d.next = append(d.next, f)
	default:
		d.now = append(d.now, f)
	}
}

func (d *disk) begin() {
	writes := d.writes
	d.writes, d.now, d.next, d.busy = nil, d.next, nil, true
	round := d.round
	limit := time.AfterFunc(maxWrite, func() { d.post(func() { d.late(round) }) })
	go func() {
		for _, write := range writes {
			write()
		}
		limit.Stop()
		d.post(d.written)
	}()
}

func (d *disk) written() {
	d.busy, d.hangs = false, false
	d.round++
	now := d.now
	d.now = nil
	if len(d.writes) > 0 {
		d.begin() // before anything else, which must not overtake what is to be written
	}
	for _, f := range now {
		f()
	}
}

// late gives up waiting. Journals end with the next of their events, so what waits to be written remains bounded.
func (d *disk) late(round int) {
	if d.round != round || d.hangs {
		return
	}
	d.hangs = true
	if d.holds {
		d.warn(fmt.Errorf("%w: a later coordinator will not know of jobs to which something happens before it does", errSlowDisk))
	}
	held := append(d.now, d.next...)
	d.now, d.next = nil, nil
	for _, f := range held {
		f()
	}
}

// flush waits until all is written, but not for a disk that hangs.
func (c *Coordinator) flush() {
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	for c.disk.busy {
		select {
		case f := <-c.inbox:
			f()
		case <-limit.C:
			c.cfg.Warn(errors.New("the end of the journal is not written: the disk hangs"))
			return
		}
	}
}
