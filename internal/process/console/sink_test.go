package console

import (
	"io"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// TestTakenSeesSlowReader: a reader counts as moving if it takes a few bytes, or a page that the
// writer refills at once.
func TestTakenSeesSlowReader(t *testing.T) {
	r, w := pipetest.Pipe(t)
	s := newSink(w)
	written := make(chan error, 1)
	go func() { written <- s.write(make([]byte, 4*s.pipe)) }()
	until(t, "the pipe is full", func() bool { return s.taken() == 0 && s.wrote.Load() == int64(s.pipe) })
	before := int64(0)
	for _, n := range []int{1, page - 1, page, page, 3} {
		if _, err := io.ReadFull(r, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		before += int64(n)
		until(t, "the reader has moved", func() bool { return s.taken() == before })
	}
	r.Close()
	if err := <-written; err != unix.EPIPE {
		t.Error(err)
	}
}

// until polls for something that the kernel does without an event.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := pipetest.Soon(t); !is(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("still not so: %s", what)
		}
	}
}
