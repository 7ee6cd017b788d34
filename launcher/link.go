package launcher

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/calls"
	endpoints "github.com/golaunch/golaunch/internal/endpoint"
)

const (
	// findLimit bounds the wait for nodes that are asked where their workers are, and helloLimit the time in which a worker must have said who it is.
	findLimit  = 10 * time.Second
	helloLimit = 10 * time.Second
	// sharedFrom is the size from which what all workers get goes to each node once. It costs a worker a way there and back.
	sharedFrom = 64 << 10
)

// link is the connection to one worker.
type link struct {
	conn net.Conn
	rank int
	node string
	// methods are the handlers of turns that the worker has.
	methods []string
	// slots bound the calls that have no answer.
	slots chan struct{}

	// writing has room for who writes.
	writing chan struct{}
	mu      sync.Mutex
	waits   map[uint64]chan calls.Frame
	failure *Failure
	lost    bool
	gone    chan struct{}
}

func timeout(conn net.Conn) (end func()) {
	_ = conn.SetDeadline(time.Now().Add(helloLimit))
	return func() { _ = conn.SetDeadline(time.Time{}) }
}

func sameKey(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// call says a call and waits for its answer. When ctx ends before, the worker is told, as soon as it has read what was being written: a frame that is cut off would end
// the connection. Until then the call has its slot, and in is read. Calls with the same number of shared, which is not 0, have the same in.
func (l *link) call(ctx context.Context, number, shared uint64, method string, in []byte) ([]byte, error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.gone:
		return nil, l.err()
	}
	answer := make(chan calls.Frame, 1)
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
		said <- l.write(ctx, calls.Frame{Kind: calls.Call, Codec: calls.Raw, Call: number, Name: method, Body: in}, shared)
	}()
	select {
	case f := <-answer:
		<-l.slots
		return l.outcome(f)
	case <-ctx.Done():
		go func() {
			if <-said == nil {
				l.tell(calls.Frame{Kind: calls.Cancel, Call: number})
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

func (l *link) outcome(f calls.Frame) ([]byte, error) {
	if f.Kind == calls.Result {
		return f.Body, nil
	}
	var failed calls.Failure
	if err := json.Unmarshal(f.Body, &failed); err != nil {
		failed.Message = "it fails with what cannot be read"
	}
	return nil, &WorkerError{Rank: l.rank, Node: l.node, Message: failed.Message, Stack: failed.Stack}
}

// write says a frame, unless ctx ends before its turn comes. A write that fails ends the connection.
func (l *link) write(ctx context.Context, f calls.Frame, shared uint64) error {
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	if err != nil {
		return err
	}
	if far, is := l.conn.(*endpoints.Stream); is && shared > 0 && len(f.Body) >= sharedFrom {
		err = writeShared(far, f, shared)
	} else {
		err = calls.Write(l.conn, f)
	}
	if err != nil {
		l.conn.Close()
	}
	return err
}

// writeShared says a frame with a body that other workers get too.
func writeShared(far *endpoints.Stream, f calls.Frame, shared uint64) error {
	head, err := calls.Head(f)
	if err != nil {
		return err
	}
	if _, err := far.Write(head); err != nil {
		return err
	}
	return far.Send(endpoints.Blob{ID: endpoints.ID{shared}, Size: int64(len(f.Body)), Content: bytes.NewReader(f.Body), Inline: true})
}

// tell says a frame that a worker which is gone need not hear.
func (l *link) tell(f calls.Frame) { _ = l.write(context.Background(), f, 0) }

// bye has the worker end.
func (l *link) bye() { go l.tell(calls.Frame{Kind: calls.Bye}) }

// read gives answers to who waits for them, until the connection ends.
func (l *link) read(in *bufio.Reader) {
	for {
		f, err := calls.Read(in, calls.MaxBody)
		if err != nil || f.Kind != calls.Result && f.Kind != calls.Error {
			return
		}
		l.mu.Lock()
		if answer := l.waits[f.Call]; answer != nil {
			answer <- f
			delete(l.waits, f.Call)
		}
		l.mu.Unlock()
	}
}

// fail ends all calls with a failure, which may be nil. One that is known later is told to who asks later.
func (l *link) fail(f *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = cmp.Or(l.failure, f)
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
