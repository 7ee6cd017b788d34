package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// connection is an agent's stream to the coordinator, and the attempt to replace it.
type connection struct {
	stream *agentStream
	// in and out are the stream's channels; nil once it has ended.
	in  <-chan *pb.ToAgent
	out chan<- *pb.FromAgent
	// brokeWith is why the last stream broke.
	brokeWith error
	// redial has the outcome of connecting anew; nil while no attempt is under way. stop ends the
	// attempt.
	redial chan dialResult
	stop   context.CancelFunc
}

type dialResult struct {
	stream *agentStream
	err    error
}

// broken connects anew, unless the session was refused or the job continues elsewhere.
func (s *Session) broken() {
	c := &s.connection
	c.in, c.out = nil, nil
	c.brokeWith = s.dialer.explain(c.stream.ended)
	if s.dialer.final(c.brokeWith) {
		s.end.err = c.brokeWith
		return
	}
	c.redialFrom(s.dialer, firstAgain)
}

// With several coordinators, after the end of a connection an agent asks the same one first,
// because its host says at once whether a process still listens there. After silence, it asks
// another one.
const (
	firstAgain = -1
	firstOther = 0
)

// redialFrom connects anew, with the given place first, while the present stream stays in use.
func (c *connection) redialFrom(d dialer, first int) {
	if c.redial != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan dialResult, 1)
	c.redial, c.stop = result, cancel
	d.next = first
	d.scatter()
	go func() {
		l, err := d.connect(ctx)
		result <- dialResult{l, err}
	}()
}

func (s *Session) reconnected(r dialResult) {
	s.connection.stop()
	s.connection.redial = nil
	if r.err != nil {
		s.end.err = r.err
		return
	}
	old := s.connection.stream
	s.adopt(r.stream)
	s.pending.add(wire.Order{Do: wire.Restate{}})
	go old.close()
}

// adopt switches to a new stream. All messages that may not have arrived are sent again.
func (s *Session) adopt(l *agentStream) {
	s.connection.stream, s.connection.in, s.connection.out = l, l.in, l.out
	s.unacked.sent = 0
	s.links.set(l.conn)
	s.lease.ask(s.hasPeers())
	s.take(l.first)
}

// leaseError says that the coordinator was not heard for a lease, and why.
func (s *Session) leaseError() error {
	why := cmp.Or(s.connection.abandon(), s.connection.brokeWith, errors.New("it accepts the connection, but does not answer"))
	if n := len(s.dialer.voters); n > 1 {
		why = fmt.Errorf("cannot reach a majority of the %d nodes that may coordinate the job, and a minority must not act: %w", n, why)
	}
	return fmt.Errorf("node %s has not heard the coordinator at %s for %v: %w", s.Node.Name, s.dialer.Target, s.Lease, why)
}

// abandon ends an attempt to connect, and returns why the attempt has failed so far. It does not
// wait for a Dial that ignores its context.
func (c *connection) abandon() error {
	if c.redial == nil {
		return nil
	}
	c.stop()
	result := c.redial
	c.redial = nil
	limit := time.NewTimer(100 * time.Millisecond)
	defer limit.Stop()
	select {
	case r := <-result:
		r.close()
		return r.err
	case <-limit.C:
		go func() { (<-result).close() }()
		return errors.New("an attempt to connect hangs")
	}
}

func (r dialResult) close() {
	if r.stream != nil {
		r.stream.close()
	}
}

// sayGoodbye sends the remaining messages and a goodbye, and waits until the coordinator ends the
// stream.
func (s *Session) sayGoodbye(why string) {
	limit := time.NewTimer(wire.GoodbyeLimit)
	defer limit.Stop()
	last := append(s.unacked.unsent(), &pb.FromAgent{Body: &pb.FromAgent_Goodbye{Goodbye: &pb.Goodbye{Why: wire.Plain(why)}}})
	for s.connection.in != nil {
		out, next := s.connection.out, (*pb.FromAgent)(nil)
		if len(last) == 0 {
			out = nil
		} else {
			next = last[0]
		}
		select {
		case out <- next:
			last = last[1:]
		case _, ok := <-s.connection.in:
			if !ok {
				return
			}
		case <-limit.C:
			return
		}
	}
}
