package rankenv

import (
	"bufio"
	"context"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// TestAHandlerThatPanics checks that a call fails when its handler panics, with the handler's
// stack.
func TestAHandlerThatPanics(t *testing.T) {
	w := &server{handlers: map[string]Handler{"panic": func(context.Context, []byte) ([]byte, error) { panic("no route") }}}
	f := w.do(t.Context(), rpcframe.Frame{Kind: rpcframe.Call, Call: 7, Name: "panic"})
	if f.Kind != rpcframe.Error || f.Call != 7 || !strings.Contains(string(f.Body), "panic: no route") || !strings.Contains(string(f.Body), "serve_test.go") {
		t.Errorf("%+v %s", f, f.Body)
	}
}

// TestCancelledCallsTakeNoRoom gives a busy worker more calls than may be unanswered. Most calls
// are cancelled before they begin. The worker answers the others.
func TestCancelledCallsTakeNoRoom(t *testing.T) {
	mine, its := net.Pipe()
	ran := 0
	w := newServer(Info{}, map[string]Handler{
		"wait": func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
		"run":  func(_ context.Context, in []byte) ([]byte, error) { ran++; return in, nil },
	})
	served := make(chan error, 1)
	go func() { served <- w.serve(t.Context(), route{}, its) }()
	in := bufio.NewReader(mine)
	hear := func(kind rpcframe.Kind) rpcframe.Frame {
		t.Helper()
		for {
			f, err := rpcframe.Read(in, rpcframe.MaxHello)
			if err != nil {
				t.Error(err)
			}
			if f.Kind == kind || err != nil {
				return f
			}
		}
	}
	hear(rpcframe.Hello)
	say := func(kind rpcframe.Kind, call uint64, name, body string) {
		t.Helper()
		if err := rpcframe.Write(mine, rpcframe.Frame{Kind: kind, Call: call, Name: name, Body: []byte(body)}); err != nil {
			t.Fatal(err, <-served)
		}
	}
	say(rpcframe.Ack, 0, "", "")
	answered := make(chan rpcframe.Frame, 1)
	go func() { answered <- hear(rpcframe.Result) }()
	say(rpcframe.Call, 1, "wait", "")
	last := uint64(2 * rpcframe.MaxOutstanding)
	for call := uint64(2); call < last; call++ {
		say(rpcframe.Call, call, "run", "")
		say(rpcframe.Cancel, call, "", "")
	}
	say(rpcframe.Call, last, "run", "wanted")
	say(rpcframe.Cancel, 1, "", "")
	if f := <-answered; f.Call != last || string(f.Body) != "wanted" {
		t.Errorf("%+v, want the answer to call %d", f, last)
	}
	say(rpcframe.Bye, 0, "", "")
	if err := <-served; err != nil || ran != 1 {
		t.Errorf("%v, and %d calls were run, want the last alone", err, ran)
	}
}

// TestTooManyCalls sends a worker more calls than may be unanswered at the same time.
func TestTooManyCalls(t *testing.T) {
	q := newQueue()
	for call := range rpcframe.MaxOutstanding + 1 {
		if room := q.put(rpcframe.Frame{Call: uint64(call)}); room != (call < rpcframe.MaxOutstanding) {
			t.Errorf("call %d: %v", call, room)
		}
	}
}

// TestAResultThatIsTooLarge checks that a result that is too large fails only its own call.
func TestAResultThatIsTooLarge(t *testing.T) {
	unread, err := syscall.Mmap(-1, 0, rpcframe.MaxBody+1, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(unread) }()
	w := &server{handlers: map[string]Handler{"large": func(context.Context, []byte) ([]byte, error) { return unread, nil }}}
	f := w.do(t.Context(), rpcframe.Frame{Kind: rpcframe.Call, Call: 7, Name: "large"})
	if f.Kind != rpcframe.Error || f.Call != 7 || !strings.Contains(string(f.Body), "the result has 4294967297 bytes, 4294967296 at most") {
		t.Errorf("%+v %s", f, f.Body)
	}
}
