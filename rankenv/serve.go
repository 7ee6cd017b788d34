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
	w := &server{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), handlers: handlers, calls: newQueue()}
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
	calls    *queue
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
			if !w.calls.put(f) {
				return fmt.Errorf("%w: more than %d calls have no answer", calls.ErrFrame, calls.MaxOutstanding)
			}
		case calls.Cancel:
			w.calls.cancel(f.Call)
		default:
			return fmt.Errorf("%w: kind %d", calls.ErrFrame, f.Kind)
		}
	}
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
	f, is := w.calls.take(ctx, cancel)
	if !is {
		return nil
	}
	if answer := w.do(ctx, f); w.calls.ended() {
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
