package rankenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

const (
	// againAfter and againMost are the shortest and the longest pause between attempts to reach a controller: no event tells that a node's agent is there again, or
	// that golaunch is about to end a worker that the controller does not take.
	againAfter = 50 * time.Millisecond
	againMost  = time.Second
	// copied is the size up to which an answer is copied, so that the next call need not wait until the controller has it.
	copied = 1 << 20
)

// way leads to the controller's own socket, or to the endpoint of this node's agent.
type way struct {
	path   string
	direct bool
}

// reachController connects to the controller's own socket, where that is on this machine and this user's, or to the endpoint of this node's agent.
func reachController() (way, net.Conn, error) {
	why := ErrNoController
	for _, at := range []way{{os.Getenv("GOLAUNCH_CONTROLLER"), true}, {os.Getenv("GOLAUNCH_ENDPOINT"), false}} {
		if at.path == "" {
			continue
		}
		conn, err := at.connect()
		if err == nil {
			return at, conn, nil
		}
		why = err
	}
	return way{}, nil, why
}

func (at way) connect() (net.Conn, error) {
	if info, err := os.Stat(at.path); at.direct && err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is not this user's", at.path)
	}
	conn, err := net.Dial("unix", at.path)
	if err != nil {
		return nil, fmt.Errorf("reach the controller: %w", err)
	}
	return conn, nil
}

// again connects after the connection has ended, and a pause, which it returns longer. golaunch ends a worker whose controller does not come back.
func (at way) again(ctx context.Context, pause time.Duration) (net.Conn, time.Duration, error) {
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
		pause = min(max(2*pause, againAfter), againMost)
		if conn, err := at.connect(); err == nil {
			return conn, pause, nil
		}
	}
}

// server is a worker, over all connections that it has.
type server struct {
	info     Info
	handlers map[string]Handler
	calls    *queue

	// mu is held by whoever writes to conn, which is nil while the controller has not said what it has received.
	mu     sync.Mutex
	conn   net.Conn
	replay *rpcframe.Replay[rpcframe.Frame]
	// lent is the number of the newest answer that is still the handler's memory, and acked has one when the controller may have it.
	lent  uint64
	acked chan struct{}
}

func newServer(i Info, handlers map[string]Handler) *server {
	return &server{info: i, handlers: handlers, calls: newQueue(), replay: &rpcframe.Replay[rpcframe.Frame]{}, acked: make(chan struct{}, 1)}
}

// serve reads while calls are answered, so that a cancel is heard.
func (w *server) serve(ctx context.Context, at way, conn net.Conn) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var answering sync.WaitGroup
	answering.Go(func() { w.answer(ctx) })
	defer answering.Wait()
	defer cancel()
	for pause := time.Duration(0); ; {
		heard, over, err := w.converse(ctx, at, conn)
		if over {
			return err
		}
		if heard {
			pause = 0
		}
		if conn, pause, err = at.again(ctx, pause); err != nil {
			return err
		}
	}
}

// converse is the life of a connection, on which the controller may be heard. Over says that there is no other one: the controller needs this worker no more, or one of
// them does not understand the other.
func (w *server) converse(ctx context.Context, at way, conn net.Conn) (heard, over bool, err error) {
	defer w.drop(conn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := w.greet(at, conn); err != nil {
		return false, false, err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		f, err := rpcframe.Read(in, rpcframe.MaxBody)
		if err == nil {
			heard = true
			over, err = w.hear(conn, f)
		}
		if over || err != nil {
			return heard, over || errors.Is(err, rpcframe.ErrFrame), err
		}
	}
}

func (w *server) greet(at way, conn net.Conn) error {
	w.mu.Lock()
	received := w.replay.Received()
	w.mu.Unlock()
	i := w.info
	text, err := json.Marshal(rpcframe.Greeting{
		Key: os.Getenv("GOLAUNCH_CONTROLLER_KEY"), Job: i.JobID, Rank: i.Rank, LocalRank: i.LocalRank, Attempt: i.Attempt, Node: i.NodeName, GPU: i.GPUUUID,
		PID: os.Getpid(), Direct: at.direct, Received: &received,
	})
	if err != nil {
		return err
	}
	return rpcframe.Write(conn, rpcframe.Frame{Kind: rpcframe.Hello, Codec: rpcframe.JSON, Body: text})
}

// drop ends a connection. What is said from now on waits for the next one.
func (w *server) drop(conn net.Conn) {
	conn.Close() // with which a write ends
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

// hear takes a frame.
func (w *server) hear(conn net.Conn, f rpcframe.Frame) (over bool, err error) {
	if f.Kind == rpcframe.Ack {
		return false, w.resume(conn, f.Call)
	}
	w.mu.Lock()
	resumed := w.conn != nil
	if w.replay.Take(f) {
		w.write(w.replay.Ack())
	}
	w.mu.Unlock()
	switch f.Kind {
	case rpcframe.Bye:
		return true, nil
	case rpcframe.Error:
		return true, fmt.Errorf("the controller does not go on with this worker: %s", f.Body)
	case rpcframe.Make:
		if !resumed {
			return true, fmt.Errorf("%w: it does not say what it has received; build the controller with the same golaunch", rpcframe.ErrFrame)
		}
		return false, w.make(f)
	case rpcframe.Call:
		if !w.calls.put(f) {
			return true, fmt.Errorf("%w: more than %d calls have no answer", rpcframe.ErrFrame, rpcframe.MaxOutstanding)
		}
	case rpcframe.Cancel:
		w.calls.cancel(f.Call)
	default:
		return true, fmt.Errorf("%w: kind %d", rpcframe.ErrFrame, f.Kind)
	}
	return false, nil
}

// make answers which handlers of turns there are.
func (w *server) make(f rpcframe.Frame) error {
	var making rpcframe.Making
	if err := json.Unmarshal(f.Body, &making); err != nil {
		return fmt.Errorf("%w: %w", rpcframe.ErrFrame, err)
	}
	text, err := json.Marshal(slices.DeleteFunc(making.Turns, func(name string) bool { return w.handlers[name] == nil }))
	if err != nil {
		return err
	}
	w.say(rpcframe.Frame{Kind: rpcframe.Ready, Codec: rpcframe.JSON, Body: text})
	return nil
}

// resume hears how many frames the controller has received, with which a connection begins: the others are said again.
func (w *server) resume(conn net.Conn, received uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.replay.Acknowledge(received); err != nil {
		return err
	}
	select {
	case w.acked <- struct{}{}:
	default:
	}
	if w.conn != nil {
		return nil
	}
	w.conn = conn
	for _, f := range w.replay.Unacked() {
		w.write(f)
	}
	return nil
}

// say says a frame, now or when there is a connection.
func (w *server) say(f rpcframe.Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	small := len(f.Body) <= copied
	if small {
		f.Body = slices.Clone(f.Body) // the handler may use it again
	}
	if n := w.replay.Sent(f); !small {
		w.lent = n
	}
	w.write(f)
}

// write writes to the connection, if there is one. What is not written whole is said again on the next. mu is held.
func (w *server) write(f rpcframe.Frame) {
	if w.conn != nil && rpcframe.Write(w.conn, f) != nil {
		w.conn.Close() // the other goroutine reads its end
		w.conn = nil
	}
}

// settle waits until the controller has what is still the memory of a handler.
func (w *server) settle(ctx context.Context) bool {
	for {
		w.mu.Lock()
		has := w.replay.Acked() >= w.lent
		w.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-w.acked:
		case <-ctx.Done():
			return false
		}
	}
}

func failure(message, stack string) []byte {
	text, _ := json.Marshal(rpcframe.Failure{Message: message, Stack: stack}) // two texts can be marshalled
	return text
}
