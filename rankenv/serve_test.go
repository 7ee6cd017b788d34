package rankenv

import (
	"context"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/calls"
)

// TestAHandlerThatPanics has failed, with its stack.
func TestAHandlerThatPanics(t *testing.T) {
	w := &server{handlers: map[string]Handler{"panic": func(context.Context, []byte) ([]byte, error) { panic("no way") }}}
	f := w.do(t.Context(), calls.Frame{Kind: calls.Call, Call: 7, Name: "panic"})
	if f.Kind != calls.Error || f.Call != 7 || !strings.Contains(string(f.Body), "panic: no way") || !strings.Contains(string(f.Body), "serve_test.go") {
		t.Errorf("%+v %s", f, f.Body)
	}
}
