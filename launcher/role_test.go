package launcher

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/session"
)

// TestAJobEndsForAnError: the job would wait for nodes that cannot come.
func TestAJobEndsForAnError(t *testing.T) {
	boom := errors.New("boom")
	pipe, _ := session.Pipe()
	for name, p := range map[string]part{
		"its agents fail":    {listener: pipe, nodes: func(context.Context) (Result, error) { return Result{}, boom }},
		"its listener fails": {listener: deafListener{boom}, nodes: func(ctx context.Context) (Result, error) { <-ctx.Done(); return Result{}, nil }},
	} {
		job, err := Job{
			Command: []string{"true"}, Resources: Resources{PerNode: []int{1}},
			Output: Output{LogDir: t.TempDir(), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}},
		}.complete()
		if err != nil {
			t.Fatal(err)
		}
		h := arrive(job)
		result, err := h.work(t.Context(), p)
		if !errors.Is(err, boom) || result.Code != 125 {
			t.Errorf("%s: code %d, error %v; want 125 and %v", name, result.Code, err, boom)
		}
		if err := h.leave(result, err); err != nil {
			t.Error(err)
		}
	}
}

// deafListener accepts nobody.
type deafListener struct{ err error }

func (l deafListener) Accept() (net.Conn, error) { return nil, l.err }
func (l deafListener) Close() error              { return nil }
func (l deafListener) Addr() net.Addr            { return &net.UnixAddr{Net: "unix"} }
