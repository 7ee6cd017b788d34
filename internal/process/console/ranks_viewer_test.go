package console_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// TestFoldingOfLiveRanks shows a line of all ranks at once, and a line of one rank soon, without
// more output.
func TestFoldingOfLiveRanks(t *testing.T) {
	dir, err := logs.Access{}.OpenDir(t.TempDir(), "job")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, w := io.Pipe()
	c := console.New(w, io.Discard)
	c.Fold(1)
	c.FoldWithin(time.Second) // for a rank that is late on a busy machine
	var ranks []*logs.Rank
	for i := range 3 {
		rank, err := dir.Rank(logs.RankOptions{Node: "n1", Rank: i, Console: c, Prefix: fmt.Sprintf("[r%d n1] ", i)})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, rank)
	}
	read := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != want {
			t.Fatalf("%q, %v; want %q", buf, err, want)
		}
	}
	for _, rank := range ranks {
		fmt.Fprintln(rank.Stdout, "all say so")
	}
	read("[r0-2] all say so\n")
	fmt.Fprintln(ranks[1].Stdout, "one does")
	read("[r1] one does\n")
	for _, rank := range ranks {
		if err := rank.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestViewerShowsWhatWasLive: a viewer shows the same output that was shown live, no matter how
// files are cut into pieces.
func TestViewerShowsWhatWasLive(t *testing.T) {
	script := `seq -f 'a line of text %g' 1 300; head -c 150000 /dev/zero | tr '\0' x; printf '\n\nafter\ntorn'; echo err >&2`
	base := t.TempDir()
	d := openDir(t, base)
	var live [4]string
	for i := range live {
		r, w := pipetest.Pipe(t)
		c := console.Patient(console.New(w, w))
		shown := pipetest.Collect(t, r, w)
		run(t, newRank(t, d, logs.RankOptions{Rank: i, Console: c, Prefix: prefixOf(i)}), script)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		live[i] = shown()
	}
	var all []logs.Chunk
	reader := d.Read(logs.Filter{Attempt: logs.AllAttempts}, nil)
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
			all = append(all, logs.Chunk{File: c.File, Offset: c.Offset, Data: data[:n]})
			c.Offset, data = c.Offset+int64(n), data[n:]
		}
	}
	// Pieces of the files are mixed at random. The pieces of one file keep their order.
	slots := make([]logs.File, len(all))
	byFile := map[logs.File][]logs.Chunk{}
	for i, c := range all {
		slots[i], byFile[c.File] = c.File, append(byFile[c.File], c)
	}
	rand.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	r, w := pipetest.Pipe(t)
	c := console.New(w, w)
	shown := pipetest.Collect(t, r, w)
	v := console.NewViewer(c, prefixOf)
	ctx := pipetest.Soon(t)
	for _, f := range slots {
		v.Add(ctx, console.Source(f), byFile[f][0].Data)
		byFile[f] = byFile[f][1:]
	}
	if lines, _ := v.Held(); lines != len(live) {
		t.Errorf("%d lines are held", lines)
	}
	v.Close(pipetest.Soon(t))
	if lines, bytes := v.Held(); lines > 0 || bytes > 0 {
		t.Errorf("%d bytes of %d lines are held", bytes, lines)
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
		// The stdout and stderr of a rank may interleave differently.
		slices.Sort(want)
		if slices.Sort(lines); !slices.Equal(lines, want) {
			t.Errorf("rank %d: %d lines, want %d", i, len(lines), len(want))
		}
	}
}
