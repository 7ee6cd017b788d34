package rankenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"github.com/golaunch/golaunch/internal/calls"
)

// Handler answers a call of a controller. ctx ends when nobody wants the answer any more.
type Handler func(ctx context.Context, in []byte) (out []byte, err error)

// ErrNoController says that no controller has started this process.
var ErrNoController = errors.New("not a worker of a group: neither GOLAUNCH_CONTROLLER nor GOLAUNCH_ENDPOINT is set; launcher.Reservation.Group starts one")

// Serve makes this rank a worker of its group: it answers calls by their names, one after another in the order in which they were made, until its
// controller needs it no more, and then returns nil. A handler that panics has failed, and the rank goes on. In turns of groups on the same GPUs the handlers
// "offload" and "onload" are called, without input, where there are such.
func (i Info) Serve(ctx context.Context, handlers map[string]Handler) error {
	conn, direct, err := reachController()
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	w := &server{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), handlers: handlers, more: make(chan struct{}, 1)}
	if err := w.greet(i, direct); err != nil {
		return fmt.Errorf("greet the controller: %w", err)
	}
	if err := w.serve(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the controller: %w", err)
	}
	return context.Cause(ctx)
}

// reachController connects to the controller's own socket, where that is on this machine and this user's, or to the endpoint of this node's agent.
func reachController() (net.Conn, bool, error) {
	why := ErrNoController
	for _, at := range []struct {
		path   string
		direct bool
	}{{os.Getenv("GOLAUNCH_CONTROLLER"), true}, {os.Getenv("GOLAUNCH_ENDPOINT"), false}} {
		if at.path == "" {
			continue
		}
		if info, err := os.Stat(at.path); at.direct && err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			why = fmt.Errorf("%s is not this user's", at.path)
			continue
		}
		conn, err := net.Dial("unix", at.path)
		if err == nil {
			return conn, at.direct, nil
		}
		why = fmt.Errorf("reach the controller: %w", err)
	}
	return nil, false, why
}

type server struct {
	conn     net.Conn
	in       *bufio.Reader
	handlers map[string]Handler

	mu sync.Mutex
	// queue has the calls that have not begun, in the order in which they were made, without those that were cancelled. More says that there may be one.
	queue []calls.Frame
	more  chan struct{}
	// running is the call that runs, and end ends it; nil when nobody wants its answer, or none runs.
	running uint64
	end     func()
}

func (w *server) greet(i Info, direct bool) error {
	text, err := json.Marshal(calls.Greeting{
		Key: os.Getenv("GOLAUNCH_CONTROLLER_KEY"), Job: i.JobID, Rank: i.Rank, LocalRank: i.LocalRank, Attempt: i.Attempt, Node: i.NodeName, GPU: i.GPUUUID,
		PID: os.Getpid(), Direct: direct,
	})
	if err == nil {
		err = calls.Write(w.conn, calls.Frame{Kind: calls.Hello, Codec: calls.JSON, Body: text})
	}
	if err != nil {
		return err
	}
	f, err := calls.Read(w.in, calls.MaxBody)
	if err == nil && f.Kind != calls.Make {
		err = calls.ErrFrame
	}
	var making calls.Making
	if err == nil {
		err = json.Unmarshal(f.Body, &making)
	}
	if err != nil {
		return err
	}
	text, err = json.Marshal(slices.DeleteFunc(making.Turns, func(name string) bool { return w.handlers[name] == nil }))
	if err != nil {
		return err
	}
	return calls.Write(w.conn, calls.Frame{Kind: calls.Ready, Codec: calls.JSON, Body: text})
}

// serve reads while calls are answered, so that a cancel is heard.
func (w *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answered <- w.answer(ctx)
		w.conn.Close()
	}()
	err := w.read()
	cancel()
	if failed := <-answered; err == nil || errors.Is(err, net.ErrClosed) {
		err = failed
	}
	return err
}

// read returns nil when the controller needs this worker no more.
func (w *server) read() error {
	for {
		f, err := calls.Read(w.in, calls.MaxBody)
		if err != nil {
			return err
		}
		switch f.Kind {
		case calls.Bye:
			return nil
		case calls.Call:
			if !w.put(f) {
				return fmt.Errorf("%w: more than %d calls have no answer", calls.ErrFrame, calls.MaxOutstanding)
			}
		case calls.Cancel:
			w.cancel(f.Call)
		default:
			return fmt.Errorf("%w: kind %d", calls.ErrFrame, f.Kind)
		}
	}
}

// put has a call wait for its turn, if there is room.
func (w *server) put(f calls.Frame) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == calls.MaxOutstanding {
		return false
	}
	w.queue = append(w.queue, f)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return true
}

func (w *server) cancel(call uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == call && w.end != nil {
		w.end()
		w.end = nil
		return
	}
	w.queue = slices.DeleteFunc(w.queue, func(f calls.Frame) bool { return f.Call == call })
}

// take waits for the next call, which end ends.
func (w *server) take(ctx context.Context, end func()) (f calls.Frame, is bool) {
	for ctx.Err() == nil { // nobody wants the answers of a worker that ends
		w.mu.Lock()
		if len(w.queue) > 0 {
			f = w.queue[0]
			w.queue = slices.Delete(w.queue, 0, 1)
			w.running, w.end = f.Call, end
			w.mu.Unlock()
			return f, true
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-ctx.Done():
		}
	}
	return f, false
}

// ended says whether the answer of the call that has run is wanted.
func (w *server) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := w.end != nil
	w.end = nil
	return wanted
}

func (w *server) answer(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.one(ctx); err != nil {
			return err
		}
	}
	return nil
}

// one answers the next call.
func (w *server) one(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, is := w.take(ctx, cancel)
	if !is {
		return nil
	}
	if answer := w.do(ctx, f); w.ended() {
		return calls.Write(w.conn, answer)
	}
	return nil
}

func (w *server) do(ctx context.Context, f calls.Frame) (answer calls.Frame) {
	fail := func(message, stack string) {
		text, _ := json.Marshal(calls.Failure{Message: message, Stack: stack}) // two texts can be marshalled
		answer = calls.Frame{Kind: calls.Error, Codec: calls.JSON, Call: f.Call, Name: f.Name, Body: text}
	}
	defer func() {
		if p := recover(); p != nil {
			fail(fmt.Sprintf("panic: %v", p), string(debug.Stack()))
		}
	}()
	handler := w.handlers[f.Name]
	if handler == nil {
		fail(fmt.Sprintf("no handler is called %q", f.Name), "")
		return answer
	}
	out, err := handler(ctx, f.Body)
	if err != nil {
		fail(err.Error(), "")
		return answer
	}
	if len(out) > calls.MaxBody {
		fail(fmt.Sprintf("the result has %d bytes, %d at most", len(out), calls.MaxBody), "")
		return answer
	}
	return calls.Frame{Kind: calls.Result, Codec: calls.Raw, Call: f.Call, Body: out}
}
