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
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// findLimit bounds the wait for the nodes to say where their workers are. helloLimit bounds the
	// wait for a worker's greeting.
	findLimit  = 10 * time.Second
	helloLimit = 10 * time.Second
	// sharedFrom is the size from which a shared input goes to each node only once. Sharing costs a
	// worker one round trip.
	sharedFrom = 64 << 10
)

// link is the path to one worker. It lives on when the worker connects again.
type link struct {
	rank int
	node string
	// methods are the handlers of turns that the worker has.
	methods []string
	// slots bounds the unanswered calls.
	slots chan struct{}

	// writing is a lock: a goroutine holds it while it writes.
	writing chan struct{}
	mu      sync.Mutex
	// newest is the connection that the link reads. conn is the connection that the link writes to.
	// It is nil until newest is ready for writing. Both are nil without a connection.
	newest, conn net.Conn
	// replay is nil for a worker that cannot resume.
	replay  *rpcframe.Replay[sentFrame]
	acking  bool
	pending map[uint64]chan rpcframe.Frame

	failure *report.Failure
	lost    bool
	gone    chan struct{}
}

// sentFrame is a frame to a worker. Frames with the same number shared have the same body. A frame
// with shared 0 has a body of its own.
type sentFrame struct {
	rpcframe.Frame
	shared uint64
}

func timeout(conn net.Conn) (end func()) {
	_ = conn.SetDeadline(time.Now().Add(helloLimit))
	return func() { _ = conn.SetDeadline(time.Time{}) }
}

func sameKey(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// call calls the worker and waits for its answer. If ctx ends first, the link cancels the call at
// the worker. It must first write the whole frame of the call, since a partial frame would end the
// connection; until then the call keeps its slot and needs its input. Calls with the same number
// shared have the same input. A call with shared 0 has an input of its own.
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
	l.pending[number] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.pending, number)
		l.mu.Unlock()
	}()
	written := make(chan error, 1)
	go func() {
		written <- l.write(ctx, rpcframe.Frame{Kind: rpcframe.Call, Codec: rpcframe.Raw, Call: number, Name: method, Body: in}, shared)
	}()
	select {
	case f := <-answer:
		<-l.slots
		return l.outcome(f)
	case <-ctx.Done():
		go func() {
			if <-written == nil {
				l.send(rpcframe.Frame{Kind: rpcframe.Cancel, Call: number})
			}
			<-l.slots
		}()
		return nil, context.Cause(ctx)
	case <-l.gone:
		<-l.slots
		select {
		case f := <-answer: // the answer arrived before the link ended
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
		failed.Message = "it failed with an error that cannot be read"
	}
	return nil, &WorkerError{Rank: l.rank, Node: l.node, Message: failed.Message, Stack: failed.Stack}
}

// write writes a frame. It fails if ctx ends while other goroutines write. If there is no
// connection now, the link writes the frame to the next one.
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
	l.writeTo(conn, sentFrame{f, shared})
	return nil
}

// writeTo writes to a connection. If a write fails, writeTo closes the connection, so that read
// returns. The caller holds writing.
func (l *link) writeTo(conn net.Conn, f sentFrame) (ok bool) {
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

// errNoResume says that a worker has connected again, but cannot continue its calls.
var errNoResume = errors.New("its connection had ended, and its calls with it")

// resume continues the calls of a worker that has connected again. It sends the frames that the
// worker has not received.
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
	go l.resend(conn)
	return nil
}

// resend begins a connection: it sends how many frames this end has received, and then the frames
// that the worker lacks.
func (l *link) resend(conn net.Conn) {
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
		if !l.writeTo(conn, f) {
			return
		}
	}
}

// disconnect notes that a connection has ended, and reports whether the link has no connection now.
func (l *link) disconnect(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != conn {
		return false
	}
	l.newest, l.conn = nil, nil
	return true
}

// writeShared writes a frame whose body other workers get too.
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

// send writes a frame that need not arrive if the worker is dead.
func (l *link) send(f rpcframe.Frame) { _ = l.write(context.Background(), f, 0) }

// bye tells the worker to end.
func (l *link) bye() { go l.send(rpcframe.Frame{Kind: rpcframe.Bye}) }

// read passes answers to their calls until the connection ends, or a newer one exists. It fails for
// a malformed frame.
func (l *link) read(conn net.Conn, in *bufio.Reader) error {
	for {
		f, err := rpcframe.Read(in, rpcframe.MaxBody)
		if err == nil {
			err = l.receive(conn, f)
		}
		if errors.Is(err, rpcframe.ErrFrame) {
			return err
		}
		if err != nil {
			return nil //nolint:nilerr // the worker connects again, or awaitVerdict learns why it does not
		}
	}
}

func (l *link) receive(conn net.Conn, f rpcframe.Frame) error {
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
	if answer := l.pending[f.Call]; answer != nil {
		answer <- f
		delete(l.pending, f.Call)
	}
	return nil
}

// ack tells the worker how many frames this end has received. It runs in its own goroutine, since
// the reader must not wait for a writer.
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
	l.writeTo(conn, sentFrame{Frame: f})
}

// canResume reports whether the worker may connect again and continue its calls.
func (l *link) canResume() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replay != nil
}

func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest != nil
}

// fail ends all calls with a failure, which may be nil. A failure that becomes known after that
// counts only for later calls.
func (l *link) fail(f *report.Failure) {
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
	e := &WorkerError{Rank: l.rank, Node: l.node, Failure: l.failure, gone: true, Message: "it is gone, and the coordinator has not said why yet"}
	if l.failure != nil {
		e.Message = l.failure.Why
	}
	return e
}
