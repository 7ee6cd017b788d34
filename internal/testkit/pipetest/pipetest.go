// Package pipetest is what tests of programs' output have in common: a pipe, what comes out of it,
// and how long that may take.
package pipetest

import (
	"context"
	"io"
	"os"
	"testing"
	"time"
)

// Soon bounds what takes milliseconds when nothing is wrong.
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
