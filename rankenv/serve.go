package rankenv

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// Handler answers a call of a controller. ctx ends when the answer is no longer wanted.
type Handler func(ctx context.Context, in []byte) (out []byte, err error)

// ErrNoController means that no controller started this process.
var ErrNoController = errors.New("not a worker of a group: neither GOLAUNCH_CONTROLLER nor GOLAUNCH_ENDPOINT is set; package launcher/group starts one")

// Serve makes this rank a worker of its group. It answers calls by name, one after another in
// order, and returns nil when the controller no longer needs this worker. If its connection breaks,
// it connects again, and no call is lost. If a handler panics, its call fails, and the rank
// continues. If groups take turns on the same GPUs, the controller calls the handlers "offload" and
// "onload", if they exist, without input.
func (i Info) Serve(ctx context.Context, handlers map[string]Handler) error {
	route, conn, err := reachController()
	if err != nil {
		return err
	}
	w := newServer(i, handlers)
	if err := w.serve(ctx, route, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the controller: %w", err)
	}
	return context.Cause(ctx)
}

func (w *server) answer(ctx context.Context) {
	for ctx.Err() == nil {
		w.one(ctx)
	}
}

// one waits for the next call, and answers it.
func (w *server) one(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, is := w.calls.take(ctx, cancel)
	if !is || !w.settle(ctx) {
		return
	}
	if answer := w.do(ctx, f); w.calls.ended() {
		w.send(answer)
	}
}

func (w *server) do(ctx context.Context, f rpcframe.Frame) (answer rpcframe.Frame) {
	fail := func(message, stack string) {
		answer = rpcframe.Frame{Kind: rpcframe.Error, Codec: rpcframe.JSON, Call: f.Call, Name: f.Name, Body: failure(message, stack)}
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
	if len(out) > rpcframe.MaxBody {
		fail(fmt.Sprintf("the result has %d bytes, %d at most", len(out), rpcframe.MaxBody), "")
		return answer
	}
	return rpcframe.Frame{Kind: rpcframe.Result, Codec: rpcframe.Raw, Call: f.Call, Body: out}
}
