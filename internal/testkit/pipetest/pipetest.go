// Package pipetest has functions that tests of programs' output share: for pipes, the output from
// them, and time limits.
package pipetest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Soon bounds operations that take milliseconds when nothing is wrong.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Pipe returns a pipe whose write end is in blocking mode, as a shell makes it.
func Pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Fd()
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// Collect reads r to its end in the background. The function that it returns closes w and returns
// the text.
func Collect(t testing.TB, r, w *os.File) func() string {
	t.Helper()
	text := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		text <- string(b)
	}()
	return func() string {
		w.Close()
		return <-text
	}
}

// Start starts a program with a pipe to its stdin and one from its stdout.
func Start(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}
