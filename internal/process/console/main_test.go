package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// helper, in the environment, makes the test program a program that uses a console on its own
// stdout and stderr.
const helper = "CONSOLE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	c := New(os.Stdout, os.Stderr)
	v := Splitter{printer: c.out}
	for range 3 {
		feed(&v, "a line\n")
	}
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "closed:", err)
	}
	os.Exit(7)
}

// soon bounds what takes milliseconds when nothing is wrong.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pipe returns a pipe whose write end is in blocking mode, as a shell makes it.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Fd()
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// collect reads r to its end in the background; the returned function closes w and gives the text.
func collect(t *testing.T, r, w *os.File) func() string {
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
