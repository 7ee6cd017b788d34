package console

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

func prefixOf(rank int) string { return fmt.Sprintf("[r%d] ", rank) }

func TestViewerStreams(t *testing.T) {
	var out, err bytes.Buffer
	c := New(&out, &err)
	v := NewViewer(c, prefixOf)
	for i, text := range []string{"one\ntw", "o\nthr", "ee"} {
		v.Add(pipetest.Soon(t), Source{0, 1, Stdout}, []byte(text))
		v.Add(pipetest.Soon(t), Source{0, 1, Stderr}, fmt.Appendf(nil, "e%d", i))
		v.Add(pipetest.Soon(t), Source{1, 1, Stdout}, []byte("-"))
	}
	v.Close(pipetest.Soon(t))
	v.Add(pipetest.Soon(t), Source{1, 1, Stdout}, []byte("more\n"))
	v.Close(pipetest.Soon(t))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if want := "[r1] one\n[r1] two\n[r1] three\n[r1] ---\n[r1] more\n"; out.String() != want {
		t.Errorf("stdout %q, want %q", out.String(), want)
	}
	if want := "[r1] e0e1e2\n"; err.String() != want {
		t.Errorf("stderr %q, want %q", err.String(), want)
	}
}

// TestViewerMemoryIsBounded: unfinished lines of many ranks are shown once they exceed the bound;
// nothing is lost.
func TestViewerMemoryIsBounded(t *testing.T) {
	const ranks, rounds = 1000, 3
	r, w := pipetest.Pipe(t)
	c := New(w, w)
	shown := pipetest.Collect(t, r, w)
	v := NewViewer(c, func(int) string { return "" })
	ctx := pipetest.Soon(t)
	piece := bytes.Repeat([]byte("x"), 8000)
	for range rounds {
		for rank := range ranks {
			if v.Add(ctx, Source{0, rank, Stdout}, piece); v.held > maxHeld {
				t.Fatalf("%d bytes are held", v.held)
			}
		}
	}
	held := 0
	for _, line := range v.unfinished {
		held += len(line.text)
	}
	if held != v.held {
		t.Errorf("%d bytes are held, counted %d", held, v.held)
	}
	v.Close(pipetest.Soon(t))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := strings.Count(shown(), "x"); got != ranks*rounds*len(piece) {
		t.Errorf("%d bytes shown", got)
	}
}

// TestViewerWaits: a viewer loses nothing while the reader does not read. Lines left when its
// context ends are counted.
func TestViewerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		move := make(chan struct{})
		var out, words bytes.Buffer
		c := New(writer(func(b []byte) (int, error) { <-move; return out.Write(b) }), &words)
		v := NewViewer(c, prefixOf)
		add := func(ctx context.Context, n int) {
			for i := range n {
				v.Add(ctx, Source{0, 0, Stdout}, fmt.Appendf(nil, "%d\n", i))
			}
		}
		added := make(chan struct{})
		go func() { add(t.Context(), 2*buffers); close(added) }()
		time.Sleep(100 * patience)
		select {
		case <-added:
			t.Error("nothing was waited for")
		default:
		}
		for range buffers {
			move <- struct{}{}
		}
		<-added
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		add(ctx, 3)
		close(move)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(out.String(), "\n"); got != 2*buffers {
			t.Errorf("%d lines", got)
		}
		if !strings.Contains(words.String(), "lines not shown: 3;") {
			t.Errorf("words %q", words.String())
		}
	})
}
