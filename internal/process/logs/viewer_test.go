package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func prefixOf(rank int) string { return fmt.Sprintf("[r%d] ", rank) }

// What a viewer shows does not depend on how files were cut into chunks, and is what was shown live.
func TestViewerShowsWhatWasLive(t *testing.T) {
	script := `seq -f 'a line of text %g' 1 300; head -c 150000 /dev/zero | tr '\0' x; printf '\n\nafter\ntorn'; echo err >&2`
	base := t.TempDir()
	d := openDir(t, base)
	var live [4]string
	for i := range live {
		r, w := pipe(t)
		c := patiently(NewConsole(w, w))
		shown := collect(t, r, w)
		run(t, newRank(t, d, RankOptions{Rank: i, Console: c, Prefix: prefixOf(i)}), script)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		live[i] = shown()
	}
	var all []Chunk
	reader := d.Read(everything, nil)
	for {
		c, err := reader.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for data := bytes.Clone(c.Data); len(data) > 0; {
			n := min(1+rand.IntN(5000), len(data))
			all = append(all, Chunk{c.File, c.Offset, data[:n]})
			c.Offset, data = c.Offset+int64(n), data[n:]
		}
	}
	// Files are mixed at random, each in its order.
	slots := make([]File, len(all))
	byFile := map[File][]Chunk{}
	for i, c := range all {
		slots[i], byFile[c.File] = c.File, append(byFile[c.File], c)
	}
	rand.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	r, w := pipe(t)
	c := NewConsole(w, w)
	shown := collect(t, r, w)
	v := NewViewer(c, prefixOf)
	ctx := soon(t)
	for _, f := range slots {
		v.Add(ctx, byFile[f][0])
		byFile[f] = byFile[f][1:]
	}
	v.End(soon(t), 0)
	if len(v.lines) != len(live)-1 {
		t.Errorf("%d lines are held", len(v.lines))
	}
	v.Close(soon(t))
	if v.held != 0 || len(v.lines) > 0 {
		t.Errorf("%d bytes of %d lines are held", v.held, len(v.lines))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(shown()) {
		rank, _, _ := strings.Cut(line, " ")
		got[rank] = append(got[rank], line)
	}
	for i, text := range live {
		want, lines := slices.Collect(strings.Lines(text)), got[fmt.Sprintf("[r%d]", i)]
		// stdout and stderr of a rank may be mixed otherwise.
		slices.Sort(want)
		if slices.Sort(lines); !slices.Equal(lines, want) {
			t.Errorf("rank %d: %d lines, want %d", i, len(lines), len(want))
		}
	}
}

func TestViewerStreams(t *testing.T) {
	var out, err bytes.Buffer
	c := NewConsole(&out, &err)
	v := NewViewer(c, prefixOf)
	for i, text := range []string{"one\ntw", "o\nthr", "ee"} {
		v.Add(soon(t), Chunk{File: File{0, 1, Stdout}, Data: []byte(text)})
		v.Add(soon(t), Chunk{File: File{0, 1, Stderr}, Data: fmt.Appendf(nil, "e%d", i)})
		v.Add(soon(t), Chunk{File: File{1, 1, Stdout}, Data: []byte("-")})
	}
	v.End(soon(t), 2)
	v.End(soon(t), 1)
	v.Add(soon(t), Chunk{File: File{1, 1, Stdout}, Data: []byte("more\n")})
	v.Close(soon(t))
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

// Lines without an end of very many ranks are shown when they are too much to hold; nothing is lost.
func TestViewerMemoryIsBounded(t *testing.T) {
	const ranks, rounds = 1000, 3
	r, w := pipe(t)
	c := NewConsole(w, w)
	shown := collect(t, r, w)
	v := NewViewer(c, func(int) string { return "" })
	ctx := soon(t)
	piece := bytes.Repeat([]byte("x"), 8000)
	for range rounds {
		for rank := range ranks {
			if v.Add(ctx, Chunk{File: File{0, rank, Stdout}, Data: piece}); v.held > maxHeld {
				t.Fatalf("%d bytes are held", v.held)
			}
		}
	}
	held := 0
	for _, line := range v.lines {
		held += len(line.text)
	}
	if held != v.held {
		t.Errorf("%d bytes are held, counted %d", held, v.held)
	}
	v.Close(soon(t))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := strings.Count(shown(), "x"); got != ranks*rounds*len(piece) {
		t.Errorf("%d bytes shown", got)
	}
}

// A console that does not move for long loses nothing of what a viewer shows, and what it had not taken when the viewer's context
// ended is counted.
func TestViewerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		move := make(chan struct{})
		var out, words bytes.Buffer
		c := NewConsole(writer(func(b []byte) (int, error) { <-move; return out.Write(b) }), &words)
		v := NewViewer(c, prefixOf)
		add := func(ctx context.Context, n int) {
			for i := range n {
				v.Add(ctx, Chunk{File: File{0, 0, Stdout}, Data: fmt.Appendf(nil, "%d\n", i)})
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
