package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// line is one of a rank's; Rank is -1 where something is missing.
type line struct {
	Rank    int    `json:"r"`
	Attempt int    `json:"a"`
	Stream  int    `json:"s"`
	Node    string `json:"n"`
	Text    string `json:"t"`
}

// batch is what is sent at a time: the newest lines, and how many were left out before them since a page can show no more.
type batch struct {
	Lines   []line `json:"lines"`
	Skipped int    `json:"skipped"`
	Over    bool   `json:"over"`
	Error   string `json:"error,omitempty"`
}

// A page is sent at most so many lines at a time, and that often.
const (
	maxLines = 2000
	logPause = 250 * time.Millisecond
)

// logs sends what ranks write.
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
	go t.read(source.Logs(ctx, v.Get("job"), launcher.LogFilter{Ranks: ranks, Attempt: max(-1, attempt), Follow: true}))
	for {
		select {
		case <-t.more:
		case <-time.After(patience / 2): // so that a browser that is gone is noticed
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
	open map[line][]byte
	// more has an element when there is something to take.
	more chan struct{}

	mu sync.Mutex
	b  batch
}

func newTail(most int) *tail {
	return &tail{most: most, open: map[line][]byte{}, more: make(chan struct{}, 1)}
}

// read reads all chunks.
func (t *tail) read(chunks iter.Seq2[launcher.LogChunk, error]) {
	why := ""
	for c, err := range chunks {
		switch {
		case err != nil:
			why = text(err.Error(), maxReason)
		case c.Missing != "":
			t.put(line{Rank: -1, Node: text(c.Node, maxName), Text: text(c.Missing, maxLine)})
		default:
			t.add(line{Rank: c.Rank, Attempt: c.Attempt, Stream: c.Stream, Node: text(c.Node, maxName)}, c.Data)
		}
	}
	for of, rest := range t.open {
		if of.Text = text(string(rest), maxLine); len(rest) > 0 {
			t.put(of)
		}
	}
	t.change(func(b *batch) { b.Over, b.Error = true, why })
}

// add splits what a rank wrote into lines. Of one that is too long for a page the begin is kept.
func (t *tail) add(of line, data []byte) {
	rest := append(t.open[of], data...)
	for {
		one, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole {
			t.open[of] = append([]byte(nil), rest[:min(len(rest), 4*maxLine)]...)
			return
		}
		l := of
		l.Text = text(string(one), maxLine)
		t.put(l)
		rest = after
	}
}

func (t *tail) put(l line) {
	t.change(func(b *batch) {
		if b.Lines = append(b.Lines, l); len(b.Lines) >= 2*t.most {
			b.Skipped += len(b.Lines) - t.most
			b.Lines = append(b.Lines[:0], b.Lines[len(b.Lines)-t.most:]...)
		}
	})
}

func (t *tail) change(do func(*batch)) {
	t.mu.Lock()
	do(&t.b)
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// take is what has come since the last.
func (t *tail) take() batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	over := max(0, len(b.Lines)-t.most)
	b.Skipped, b.Lines = b.Skipped+over, append([]line{}, b.Lines[over:]...)
	t.b = batch{Over: b.Over, Error: b.Error}
	return b
}

// maxSpans bounds the ranks that a page names.
const maxSpans = 64

// parseRanks reads ranks such as 0,8-15; none are all.
func parseRanks(s string) (all []launcher.Span, err error) {
	if s = strings.ReplaceAll(s, " ", ""); s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, _ := strings.Cut(part, "-")
		if !strings.Contains(part, "-") {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, wrong := strconv.ParseUint(last, 10, 31)
		if err = errors.Join(err, wrong); err != nil || to < from || to == math.MaxInt32 || len(all) == maxSpans {
			return nil, fmt.Errorf("ranks %q: at most %d ranks or ranges such as 0,8-15", clip(s, 100), maxSpans)
		}
		all = append(all, launcher.Span{From: int(from), To: int(to)})
	}
	return all, nil
}
