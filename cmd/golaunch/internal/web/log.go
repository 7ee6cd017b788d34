package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/process/fold"
	"github.com/golaunch/golaunch/launcher/report"
)

// line is a line of one rank, or of several with the same text. Who has the names of the ranks.
// Missing marks a line about output that could not be read.
type line struct {
	Who     string `json:"w"`
	Stream  int    `json:"s"`
	Missing bool   `json:"m,omitempty"`
	Text    string `json:"t"`
}

// batch has the lines that are sent together: the newest lines, and the number of omitted older
// lines, since a page shows a limited number.
type batch struct {
	Lines   []line `json:"lines"`
	Skipped int    `json:"skipped"`
	Over    bool   `json:"over"`
	Error   string `json:"error,omitempty"`
}

// Bounds of the lines sent to a page at a time, and their interval.
const (
	maxLines = 2000
	logPause = 250 * time.Millisecond
)

// logs sends the output of ranks.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	ranks, err := parseRanks(v.Get("ranks"))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	attempt, err := strconv.Atoi(v.Get("attempt"))
	if err != nil {
		attempt = -1
	}
	source, err := s.source(r.Context(), v.Get("job"))
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	st, leave, ok := s.stream(w, r)
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	t := newTail(maxLines)
	if v.Get("fold") != "" {
		t.fold(ranks)
	}
	defer t.rest()
	go t.read(source.Logs(ctx, v.Get("job"), report.LogFilter{Ranks: ranks, Attempt: max(-1, attempt), Follow: true}))
	for {
		select {
		case <-t.more:
		case <-time.After(patience / 2): // so that the server notices the end of a browser
		case <-ctx.Done():
			return
		}
		b := t.take()
		body, err := json.Marshal(b)
		if err != nil || st.send(body) != nil || b.Over {
			return
		}
		select {
		case <-time.After(logPause):
		case <-ctx.Done():
			return
		}
	}
}

// tail keeps the newest lines of ranks until they are taken.
type tail struct {
	most int
	open map[output][]byte
	// more signals that take has something to return.
	more chan struct{}

	mu sync.Mutex
	b  batch
	// folder folds equal lines of the chosen ranks, or of all; nil if lines are not folded. timer
	// flushes the lines that have waited long enough.
	folder *fold.Folder
	timer  *time.Timer
	chosen []report.Span
	world  int
}

// output is a stream of a rank.
type output struct {
	node                  string
	rank, attempt, stream int
}

func newTail(most int) *tail {
	return &tail{most: most, open: map[output][]byte{}, more: make(chan struct{}, 1)}
}

// fold turns on folding of equal lines. Call it before read.
func (t *tail) fold(chosen []report.Span) {
	t.folder, t.chosen = fold.New(0, nil), chosen
	t.timer = time.AfterFunc(time.Hour, t.tick)
	t.timer.Stop()
}

// read reads all chunks.
func (t *tail) read(chunks iter.Seq2[report.LogChunk, error]) {
	why := ""
	for c, err := range chunks {
		switch {
		case err != nil:
			why = text(err.Error(), maxReason)
		case c.Missing != "":
			t.change(func() { t.keep(line{Who: text(c.Node, maxName), Missing: true, Text: text(c.Missing, maxLine)}) })
		default:
			t.expect(c.WorldSize)
			t.add(output{c.Node, c.Rank, c.Attempt, c.Stream}, c.Data)
		}
	}
	for of, rest := range t.open {
		if len(rest) > 0 {
			t.put(of, rest)
		}
	}
	t.change(func() {
		if t.folder != nil {
			t.timer.Stop()
			t.groups(t.folder.Flush())
		}
		t.b.Over, t.b.Error = true, why
	})
}

// expect sets the number of ranks.
func (t *tail) expect(world int) {
	if t.folder == nil || world == t.world {
		return
	}
	t.world = world
	expected := fold.World(world)
	if len(t.chosen) > 0 {
		var ranks []int
		for _, s := range t.chosen {
			for rank := s.From; rank <= min(s.To, world-1); rank++ {
				ranks = append(ranks, rank)
			}
		}
		expected = fold.Of(ranks...)
	}
	t.change(func() { t.groups(t.folder.Expect(expected)) })
}

// add splits output into lines. If a line is too long for a page, it keeps the beginning.
func (t *tail) add(of output, data []byte) {
	rest := append(t.open[of], data...)
	for {
		one, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole {
			t.open[of] = append([]byte(nil), rest[:min(len(rest), 4*maxLine)]...)
			return
		}
		t.put(of, one)
		rest = after
	}
}

// put takes a line of a rank.
func (t *tail) put(of output, said []byte) {
	t.change(func() {
		if t.folder == nil {
			t.keep(line{Who: fmt.Sprintf("r%d %s", of.rank, text(of.node, maxName)), Stream: of.stream, Text: text(string(said), maxLine)})
			return
		}
		t.groups(t.folder.Add(fold.Line{Rank: of.rank, Stream: fold.Stream(of.stream), Text: said[:min(len(said), 4*maxLine)], At: time.Now()}))
		t.arm()
	})
}

// tick flushes the lines that have waited long enough.
func (t *tail) tick() {
	t.change(func() {
		t.groups(t.folder.Tick(time.Now()))
		t.arm()
	})
}

func (t *tail) arm() {
	if due, any := t.folder.Due(); any {
		t.timer.Reset(max(0, time.Until(due)))
	}
}

func (t *tail) groups(all []fold.Group) {
	for _, g := range all {
		t.keep(line{Who: strings.Trim(g.Who(), "[]"), Stream: int(g.Stream), Text: text(g.Text(), maxLine)})
	}
}

func (t *tail) keep(l line) {
	b := &t.b
	if b.Lines = append(b.Lines, l); len(b.Lines) >= 2*t.most {
		b.Skipped += len(b.Lines) - t.most
		b.Lines = append(b.Lines[:0], b.Lines[len(b.Lines)-t.most:]...)
	}
}

func (t *tail) change(do func()) {
	t.mu.Lock()
	do()
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// rest stops the tail's timer.
func (t *tail) rest() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// take returns the lines since the last call.
func (t *tail) take() batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	over := max(0, len(b.Lines)-t.most)
	b.Skipped, b.Lines = b.Skipped+over, append([]line{}, b.Lines[over:]...)
	t.b = batch{Over: b.Over, Error: b.Error}
	return b
}

// maxSpans bounds the ranks in a request.
const maxSpans = 64

// parseRanks parses ranks such as 0,8-15; an empty text means all.
func parseRanks(s string) ([]report.Span, error) {
	spans, err := jobflags.ParseRanks(strings.ReplaceAll(s, " ", ""))
	if err != nil || len(spans) > maxSpans {
		return nil, fmt.Errorf("ranks %q: at most %d ranks or ranges such as 0,8-15", clip(s, 100), maxSpans)
	}
	return spans, nil
}
