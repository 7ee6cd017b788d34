package group

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	endpoints "github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/rpcframe"

	"github.com/golaunch/golaunch/launcher"
)

const (
	// findLimit bounds the wait for nodes that are asked where their workers are, and helloLimit
	// the time in which a worker must have said who it is.
	findLimit  = 10 * time.Second
	helloLimit = 10 * time.Second
	// sharedFrom is the size from which what all workers get goes to each node once. It costs a
	// worker a way there and back.
	sharedFrom = 64 << 10
)

// link is the way to one worker, over all connections that it has.
type link struct {
	rank int
	node string
	// methods are the handlers of turns that the worker has.
	methods []string
	// slots bound the calls that have no answer.
	slots chan struct{}

	// writing has room for who writes.
	writing chan struct{}
	mu      sync.Mutex
	// newest is the connection that is read, and conn the same once it is written to; nil when
	// there is none.
	newest, conn net.Conn
	// replay is nil of a worker that does not come again.
	replay *rpcframe.Replay[sentFrame]
	acking bool
	waits  map[uint64]chan rpcframe.Frame

	failure *launcher.Failure
	lost    bool
	gone    chan struct{}
}

// sentFrame is a frame; those with the same number of shared, which is not 0, have the same body.
type sentFrame struct {
	rpcframe.Frame
	shared uint64
}

func timeout(conn net.Conn) (end func()) {
	_ = conn.SetDeadline(time.Now().Add(helloLimit))
	return func() { _ = conn.SetDeadline(time.Time{}) }
}

func sameKey(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// call says a call and waits for its answer. When ctx ends before, the worker is told, as soon as
// it has read what was being written: a frame that is cut off would end the connection. Until then
// the call has its slot, and in is read. Calls with the same number of shared, which is not 0, have
// the same in.
func (l *link) call(ctx context.Context, number, shared uint64, method string, in []byte) ([]byte, error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.gone:
		return nil, l.err()
	}
	answer := make(chan rpcframe.Frame, 1)
	l.mu.Lock()
	l.waits[number] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waits, number)
		l.mu.Unlock()
	}()
	said := make(chan error, 1)
	go func() {
		said <- l.write(ctx, rpcframe.Frame{Kind: rpcframe.Call, Codec: rpcframe.Raw, Call: number, Name: method, Body: in}, shared)
	}()
	select {
	case f := <-answer:
		<-l.slots
		return l.outcome(f)
	case <-ctx.Done():
		go func() {
			if <-said == nil {
				l.tell(rpcframe.Frame{Kind: rpcframe.Cancel, Call: number})
			}
			<-l.slots
		}()
		return nil, context.Cause(ctx)
	case <-l.gone:
		<-l.slots
		select {
		case f := <-answer: // which came before the end
			return l.outcome(f)
		default:
			return nil, l.err()
		}
	}
}

func (l *link) outcome(f rpcframe.Frame) ([]byte, error) {
	if f.Kind == rpcframe.Result {
		return f.Body, nil
	}
	var failed rpcframe.Failure
	if err := json.Unmarshal(f.Body, &failed); err != nil {
		failed.Message = "it fails with what cannot be read"
	}
	return nil, &WorkerError{Rank: l.rank, Node: l.node, Message: failed.Message, Stack: failed.Stack}
}

// write says a frame, unless ctx ends before its turn comes. Without a connection it is said on the
// next one.
func (l *link) write(ctx context.Context, f rpcframe.Frame, shared uint64) error {
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	if l.replay != nil {
		l.replay.Sent(sentFrame{f, shared})
	}
	conn := l.conn
	l.mu.Unlock()
	l.put(conn, sentFrame{f, shared})
	return nil
}

// put writes to a connection, which a failure ends; who reads it hears that. The caller has the
// room in writing.
func (l *link) put(conn net.Conn, f sentFrame) (ok bool) {
	if conn == nil {
		return false
	}
	var err error
	if far, is := conn.(*endpoints.Stream); is && f.shared > 0 && len(f.Body) >= sharedFrom {
		err = writeShared(far, f.Frame, f.shared)
	} else {
		err = rpcframe.Write(conn, f.Frame)
	}
	if err != nil {
		conn.Close()
	}
	return err == nil
}

// errNoResume says that a worker cannot go on with the calls that were made of it.
var errNoResume = errors.New("its connection had ended, and its calls with it")

// resume goes on with a worker that has come again, and has received some frames.
func (l *link) resume(conn net.Conn, received *uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replay == nil || received == nil {
		return errNoResume
	}
	if err := l.replay.Acknowledge(*received); err != nil {
		return err
	}
	if l.newest != nil {
		l.newest.Close()
	}
	l.newest, l.conn = conn, nil
	go l.sayAgain(conn)
	return nil
}

// sayAgain begins with a connection: the worker hears what was received, and what it has not.
func (l *link) sayAgain(conn net.Conn) {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	l.mu.Lock()
	if l.newest != conn || l.replay == nil {
		l.mu.Unlock()
		return
	}
	l.conn = conn
	again := append([]sentFrame{{Frame: l.replay.Ack()}}, l.replay.Unacked()...)
	l.mu.Unlock()
	for _, f := range again {
		if !l.put(conn, f) {
			return
		}
	}
}

// left says that a connection has ended, and whether there is none now.
func (l *link) left(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != conn {
		return false
	}
	l.newest, l.conn = nil, nil
	return true
}

// writeShared says a frame with a body that other workers get too.
func writeShared(far *endpoints.Stream, f rpcframe.Frame, shared uint64) error {
	head, err := rpcframe.Head(f)
	if err != nil {
		return err
	}
	if _, err := far.Write(head); err != nil {
		return err
	}
	return far.Send(endpoints.Blob{ID: endpoints.ID{shared}, Size: int64(len(f.Body)), Content: bytes.NewReader(f.Body), Inline: true})
}

// tell says a frame that a worker which is gone need not hear.
func (l *link) tell(f rpcframe.Frame) { _ = l.write(context.Background(), f, 0) }

// bye has the worker end.
func (l *link) bye() { go l.tell(rpcframe.Frame{Kind: rpcframe.Bye}) }

// read gives answers to who waits for them, until the connection ends, or there is a newer one. The
// error is about a frame that makes no sense.
func (l *link) read(conn net.Conn, in *bufio.Reader) error {
	for {
		f, err := rpcframe.Read(in, rpcframe.MaxBody)
		if err == nil {
			err = l.hear(conn, f)
		}
		if errors.Is(err, rpcframe.ErrFrame) {
			return err
		}
		if err != nil {
			return nil //nolint:nilerr // it comes again, or golaunch says why not
		}
	}
}

func (l *link) hear(conn net.Conn, f rpcframe.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.newest != conn:
		return net.ErrClosed
	case f.Kind == rpcframe.Ack && l.replay != nil:
		return l.replay.Acknowledge(f.Call)
	case f.Kind != rpcframe.Result && f.Kind != rpcframe.Error:
		return rpcframe.ErrFrame
	}
	if l.replay != nil {
		l.replay.Answered(func(s sentFrame) bool { return s.Kind == rpcframe.Call && s.Call == f.Call })
		if l.replay.Take(f) && !l.acking {
			l.acking = true
			go l.ack()
		}
	}
	if answer := l.waits[f.Call]; answer != nil {
		answer <- f
		delete(l.waits, f.Call)
	}
	return nil
}

// ack says how many frames were received. Who reads does not wait for who writes.
func (l *link) ack() {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	l.mu.Lock()
	l.acking = false
	if l.replay == nil {
		l.mu.Unlock()
		return
	}
	conn, f := l.conn, l.replay.Ack()
	l.mu.Unlock()
	l.put(conn, sentFrame{Frame: f})
}

// resumes says whether the worker may come again and go on, and there whether it has a connection.
func (l *link) resumes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replay != nil
}

func (l *link) there() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest != nil
}

// fail ends all calls with a failure, which may be nil. One that is known later is told to who asks
// later.
func (l *link) fail(f *launcher.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure, l.replay = cmp.Or(l.failure, f), nil
	if !l.lost {
		l.lost = true
		close(l.gone)
	}
}

func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &WorkerError{Rank: l.rank, Node: l.node, Failure: l.failure, gone: true, Message: "it is gone, and golaunch has not said why yet"}
	if l.failure != nil {
		e.Message = l.failure.Why
	}
	return e
}
