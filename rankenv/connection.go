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
	// retryMin and retryMax are the shortest and the longest pause between attempts to reach a
	// controller. A worker must poll, because there is no event when a node's agent is back, or
	// when golaunch is about to end a worker that the controller refuses.
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
	// maxCopied is the size, in bytes, up to which the worker copies an answer. The next call then
	// need not wait until the controller has the answer, since it cannot change the copy.
	maxCopied = 1 << 20
)

// route is the way to the controller: its own socket, or the endpoint of this node's agent.
type route struct {
	path   string
	direct bool
}

// reachController connects to the controller's own socket if it is on this machine and belongs to
// this user, or else to the endpoint of this node's agent.
func reachController() (route, net.Conn, error) {
	why := ErrNoController
	for _, at := range []route{{os.Getenv("GOLAUNCH_CONTROLLER"), true}, {os.Getenv("GOLAUNCH_ENDPOINT"), false}} {
		if at.path == "" {
			continue
		}
		conn, err := at.connect()
		if err == nil {
			return at, conn, nil
		}
		why = err
	}
	return route{}, nil, why
}

func (at route) connect() (net.Conn, error) {
	if info, err := os.Stat(at.path); at.direct && err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is not this user's", at.path)
	}
	conn, err := net.Dial("unix", at.path)
	if err != nil {
		return nil, fmt.Errorf("reach the controller: %w", err)
	}
	return conn, nil
}

// reconnect connects again after a pause, and returns a longer pause for the next time. It needs no
// limit, because golaunch ends a worker whose controller does not return.
func (at route) reconnect(ctx context.Context, pause time.Duration) (net.Conn, time.Duration, error) {
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
		pause = min(max(2*pause, retryMin), retryMax)
		if conn, err := at.connect(); err == nil {
			return conn, pause, nil
		}
	}
}

// server is a worker. It has one connection to the controller at a time, and replaces a broken one.
type server struct {
	info     Info
	handlers map[string]Handler
	calls    *queue

	// mu guards writing to conn. conn is nil until the controller has reported which frames it has
	// received.
	mu     sync.Mutex
	conn   net.Conn
	replay *rpcframe.Replay[rpcframe.Frame]
	// lent is the number of the newest answer that was not copied, and is still in the handler's
	// memory. acked gets a message when the controller may have received that answer.
	lent  uint64
	acked chan struct{}
}

func newServer(i Info, handlers map[string]Handler) *server {
	return &server{info: i, handlers: handlers, calls: newQueue(), replay: &rpcframe.Replay[rpcframe.Frame]{}, acked: make(chan struct{}, 1)}
}

// serve reads frames while another goroutine answers calls, so that it sees cancellations at once.
func (w *server) serve(ctx context.Context, at route, conn net.Conn) (err error) {
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
		if conn, pause, err = at.reconnect(ctx, pause); err != nil {
			return err
		}
	}
}

// converse handles one connection to its end. heard says that the controller sent a frame. over
// says that the worker must not connect again, because the controller no longer needs it, or
// because the two use different protocols.
func (w *server) converse(ctx context.Context, at route, conn net.Conn) (heard, over bool, err error) {
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
			over, err = w.receive(conn, f)
		}
		if over || err != nil {
			return heard, over || errors.Is(err, rpcframe.ErrFrame), err
		}
	}
}

func (w *server) greet(at route, conn net.Conn) error {
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

// drop ends a connection. Later frames wait for the next one.
func (w *server) drop(conn net.Conn) {
	conn.Close() // Close also ends a write that is in progress
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

// receive handles a frame.
func (w *server) receive(conn net.Conn, f rpcframe.Frame) (over bool, err error) {
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
		return true, fmt.Errorf("the controller does not resume this worker: %s", f.Body)
	case rpcframe.Make:
		if !resumed {
			return true, fmt.Errorf("%w: it does not say what it has received; build the controller with the same golaunch", rpcframe.ErrFrame)
		}
		return false, w.sendTurnHandlers(f)
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

// sendTurnHandlers tells the controller which of the handlers "offload" and "onload" this worker
// has.
func (w *server) sendTurnHandlers(f rpcframe.Frame) error {
	var making rpcframe.Making
	if err := json.Unmarshal(f.Body, &making); err != nil {
		return fmt.Errorf("%w: %w", rpcframe.ErrFrame, err)
	}
	text, err := json.Marshal(slices.DeleteFunc(making.Turns, func(name string) bool { return w.handlers[name] == nil }))
	if err != nil {
		return err
	}
	w.send(rpcframe.Frame{Kind: rpcframe.Ready, Codec: rpcframe.JSON, Body: text})
	return nil
}

// resume takes the number of frames that the controller received, and sends the others again.
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

// send sends a frame, now or on the next connection.
func (w *server) send(f rpcframe.Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	small := len(f.Body) <= maxCopied
	if small {
		f.Body = slices.Clone(f.Body) // the handler may reuse it
	}
	if n := w.replay.Sent(f); !small {
		w.lent = n
	}
	w.write(f)
}

// write writes to the connection, if there is one. A frame that is not written completely is sent
// again on the next connection. The caller holds mu.
func (w *server) write(f rpcframe.Frame) {
	if w.conn != nil && rpcframe.Write(w.conn, f) != nil {
		w.conn.Close() // this makes the reading goroutine connect again
		w.conn = nil
	}
}

// settle waits until the controller has received the answer that is still in the handler's memory.
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
	text, _ := json.Marshal(rpcframe.Failure{Message: message, Stack: stack}) // Marshal cannot fail here
	return text
}
