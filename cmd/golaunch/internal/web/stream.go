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

// stream is an open response of server-sent events.
type stream struct {
	w       io.Writer
	flush   func() error
	control *http.ResponseController
}

// stream starts a response that stays open; the caller must call leave. It fails if too many
// streams are open.
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
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		st.w, st.flush = z, func() error { return errors.Join(z.Flush(), st.control.Flush()) }
	}
	_ = st.control.SetReadDeadline(time.Time{}) // the deadline was for the request
	return st, func() { <-s.streams }, true
}

// send sends one event, without line breaks. It gives up on a browser that does not read in time.
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

// events sends a page, and then its changes. It queues nothing: a slow browser gets the newest
// state once it has read the previous one.
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

// firstWait is how long the first page waits for coordinators.
const firstWait = 3 * time.Second

func (s *Server) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	_ = s.opts.Model.Ready(ctx) // the state has the error
}
