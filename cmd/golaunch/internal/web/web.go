// Package web shows clusters and jobs in a browser: a page that a process of the user's serves, on a login node or a laptop, and the same
// page as one file that can be mailed.
//
// A [Server] shows what a [view.Model] has, which is kept up to date only while a page is open. The browser loads nothing from elsewhere,
// and whoever has not had a link of the server sees nothing. A [Report] needs no server.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// Options say what a [Server] shows, and what may be done there.
type Options struct {
	// Model is what is shown. Sources has those of now, which are asked for logs and to stop jobs.
	Model   *view.Model
	Sources func() map[string]view.Source
	// Version is this golaunch's.
	Version string
	// Host is the name that the user listens on; a browser may also use any address, "localhost" and the name of this machine.
	Host string
	// AllowStop lets whoever sees the page stop jobs.
	AllowStop bool
	// Stacks is where the ranks of a job of a source are in their programs, as text; when nil the page does not offer it.
	Stacks func(ctx context.Context, source view.Source, job string) (string, error)
	// Metrics answers whoever has MetricsToken, which is not empty then; when nil there are none. Where there are, the model is kept up to
	// date even when no page is open.
	Metrics      http.Handler
	MetricsToken string
	// Links takes the newest link: the first before Serve answers anybody, and the next whenever one was used. It works once.
	Links func(path string)
	// Every is how often pages are brought up to date; a second when 0.
	Every time.Duration
}

// Limits of the server. A page of 8,000 ranks is under 1 MiB; pages that are larger come less often.
const (
	maxStrangers = 128
	maxGuests    = 128
	maxStreams   = 32
	maxHeader    = 16 << 10
	maxBody      = 4 << 10
	maxRate      = 1 << 20
	patience     = 30 * time.Second
	linger       = 30 * time.Second
)

// Server serves the page. It may be used by several goroutines.
type Server struct {
	opts    Options
	gate    *gate
	feed    *feed
	streams chan struct{}
	stacks  sync.Mutex
}

// New returns a server that serves nothing yet.
func New(o Options) *Server {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Links == nil {
		o.Links = func(string) {}
	}
	return &Server{
		opts: o, gate: newGate(o.Host), feed: newFeed(o), streams: make(chan struct{}, maxStreams),
	}
}

// Serve answers browsers at a listener until ctx ends, and closes it. A Server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: patience, ReadTimeout: patience, IdleTimeout: 2 * time.Minute,
		WriteTimeout: stackPatience + patience, // streams have their own
		ConnContext:  withPlace,
	}
	ended := context.AfterFunc(ctx, func() { _ = h.Close() }) // nobody waits for what is half sent
	defer ended()
	defer s.feed.close()
	if s.opts.Metrics != nil {
		s.feed.watch()
	}
	s.opts.Links(s.gate.link())
	if err := h.Serve(&places{Listener: l, maxStrangers: maxStrangers, maxGuests: maxGuests}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the dashboard at %v: %w", l.Addr(), err)
	}
	return nil
}
