package web

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// stream is an open answer of server-sent events.
type stream struct {
	w       io.Writer
	flush   func() error
	control *http.ResponseController
}

// stream begins an answer that goes on; the caller must call leave. It is refused when too many are open.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) (st *stream, leave func(), ok bool) {
	select {
	case s.streams <- struct{}{}:
	default:
		fail(w, http.StatusServiceUnavailable, errors.New("too many pages are open; close some of them"))
		return nil, nil, false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	st = &stream{w: w, control: http.NewResponseController(w)}
	st.flush = st.control.Flush
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // there is such a level
		st.w, st.flush = z, func() error { return errors.Join(z.Flush(), st.control.Flush()) }
	}
	_ = st.control.SetReadDeadline(time.Time{}) // which was for the request
	return st, func() { <-s.streams }, true
}

// send sends one event, which has no line break. A browser that does not take it in time is left.
func (st *stream) send(body []byte) error {
	if err := st.control.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, piece := range [][]byte{[]byte("data: "), body, []byte("\n\n")} {
		if _, err := st.w.Write(piece); err != nil {
			return err
		}
	}
	return st.flush()
}

// events sends what a page shows, and then what of it changes. Nothing is queued: who is slow is sent the newest when the last has gone.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	st, leave, ok := s.stream(w, r)
	if !ok {
		return
	}
	defer leave()
	s.feed.watch()
	defer s.feed.leave()
	s.await(r.Context())
	var last parts
	for {
		now := s.feed.page(q)
		body := now.since(last)
		if err := st.send(body); err != nil {
			return
		}
		last = now
		select {
		case <-time.After(max(s.opts.Every, time.Duration(len(body))*time.Second/maxRate)):
		case <-r.Context().Done():
			return
		}
	}
}

// firstWait is how long the first page waits for what coordinators say.
const firstWait = 3 * time.Second

func (s *Server) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	_ = s.opts.Model.Ready(ctx) // the state says what is wrong
}
