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

// broken connects anew, unless the session was refused or the job continues elsewhere.
func (s *Session) broken() {
	s.in, s.out = nil, nil
	s.brokeWith = s.dialer.explain(s.link.ended)
	if s.dialer.final(s.brokeWith) {
		s.err = s.brokeWith
		return
	}
	s.connect(firstAgain)
}

// If there are several coordinators: after the end of a connection an agent asks the same one
// first, because its host answers and says at once whether a process listens there. After silence
// it asks another one.
const (
	firstAgain = -1
	firstOther = 0
)

// connect connects anew, while the present stream stays in use.
func (s *Session) connect(first int) {
	if s.redial != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan dialResult, 1)
	s.redial, s.stop = result, cancel
	d := s.dialer // the original may change while this one is used
	d.next = first
	d.scatter()
	go func() {
		l, err := d.connect(ctx)
		result <- dialResult{l, err}
	}()
}

func (s *Session) reconnected(r dialResult) {
	s.stop()
	s.redial = nil
	if r.err != nil {
		s.err = r.err
		return
	}
	old := s.link
	s.adopt(r.link)
	s.pending = append(s.pending, wire.Order{Do: wire.Restate{}})
	go old.close()
}

// adopt switches to a stream. All that may not have arrived is sent again.
func (s *Session) adopt(l *agentStream) {
	s.link, s.in, s.out, s.sent = l, l.in, l.out, 0
	s.links.set(l.conn)
	s.heartbeat()
	s.take(l.first)
}

// leaseError says why the coordinator was not heard for a lease.
func (s *Session) leaseError() error {
	why := cmp.Or(s.abandon(), s.brokeWith, errors.New("it accepts the connection, but does not answer"))
	if n := len(s.dialer.voters); n > 1 {
		why = fmt.Errorf("cannot reach a majority of the %d nodes that may coordinate the job, and a minority must not act: %w", n, why)
	}
	return fmt.Errorf("node %s has not heard the coordinator at %s for %v: %w", s.Node.Name, s.dialer.Target, s.Lease, why)
}

// abandon ends an attempt to connect and says why it has failed so far. It does not wait for a Dial
// that ignores its context.
func (s *Session) abandon() error {
	if s.redial == nil {
		return nil
	}
	s.stop()
	result := s.redial
	s.redial = nil
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
	if r.link != nil {
		r.link.close()
	}
}

// sayGoodbye sends what remains and a goodbye, and waits until the coordinator ends the stream.
func (s *Session) sayGoodbye(why string) {
	limit := time.NewTimer(wire.GoodbyeLimit)
	defer limit.Stop()
	last := append(s.unacked[s.sent:], &pb.FromAgent{Body: &pb.FromAgent_Goodbye{Goodbye: &pb.Goodbye{Why: wire.Plain(why)}}})
	for s.in != nil {
		out, next := s.out, (*pb.FromAgent)(nil)
		if len(last) == 0 {
			out = nil
		} else {
			next = last[0]
		}
		select {
		case out <- next:
			last = last[1:]
		case _, ok := <-s.in:
			if !ok {
				return
			}
		case <-limit.C:
			return
		}
	}
}
