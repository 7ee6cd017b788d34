package tcpstore

import (
	"container/list"
	"time"
)

// deadlines has the clients that must finish something within patience.
type deadlines struct {
	patience time.Duration
	// late has the clients with a deadline, the earliest first.
	late list.List
	// silent has the clients that have sent nothing yet, the oldest first.
	silent list.List
}

// times are the times of a client, and its places in the lists of [deadlines].
type times struct {
	// came is when the client connected. silent is its place among the clients that have sent
	// nothing; nil for other clients.
	came   time.Time
	silent *list.Element
	// due is the deadline of the request or reply under way. late is the client's place among the
	// clients with a deadline; nil if it has none.
	due  time.Time
	late *list.Element
}

// admit notes a new client that has sent nothing yet.
func (d *deadlines) admit(c *conn) {
	c.times.came = time.Now()
	c.times.silent = d.silent.PushBack(c)
}

// markSpoken removes a client from the list of silent clients.
func (d *deadlines) markSpoken(c *conn) {
	if c.times.silent != nil {
		d.silent.Remove(c.times.silent)
		c.times.silent = nil
	}
}

// set requires a client to finish a request or read a reply in time.
func (d *deadlines) set(c *conn) {
	if c.times.late == nil {
		c.times.due = time.Now().Add(d.patience)
		c.times.late = d.late.PushBack(c)
	}
}

func (d *deadlines) clear(c *conn) {
	if c.times.late != nil {
		d.late.Remove(c.times.late)
		c.times.late = nil
	}
}

// next returns the earliest deadline; zero if there is none.
func (d *deadlines) next() time.Time {
	if e := d.late.Front(); e != nil {
		return e.Value.(*conn).times.due
	}
	return time.Time{}
}

// firstLate returns a client whose deadline has passed, or nil.
func (d *deadlines) firstLate(now time.Time) *conn {
	if at := d.next(); at.IsZero() || !now.After(at) {
		return nil
	}
	return d.late.Front().Value.(*conn)
}

// mostSilent returns the client that has been silent for longest, and for how long. It returns nil
// if no client is silent.
func (d *deadlines) mostSilent() (c *conn, silence time.Duration) {
	if e := d.silent.Front(); e != nil {
		c = e.Value.(*conn)
		silence = time.Since(c.times.came)
	}
	return c, silence
}
