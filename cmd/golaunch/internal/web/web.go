// Package web serves a page about clusters and jobs.
//
// A user's process serves it, on a login node or a laptop. A [Server] shows a [view.Model], which
// runs only while a page is open. The browser loads nothing from elsewhere, and only a link of the
// server gives access. A [Report] is the page of a job as one file that can be mailed.
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

// Options say what a [Server] shows and permits.
type Options struct {
	// Model is shown. Sources returns the present sources, which the server asks for logs and to
	// stop jobs.
	Model   *view.Model
	Sources func() map[string]view.Source
	// Version is the version of this golaunch.
	Version string
	// Host is the host name that the user chose. A browser may also use any address, "localhost"
	// and the name of this machine.
	Host string
	// AllowStop lets users of the page stop jobs.
	AllowStop bool
	// Stacks returns the stacks of a job's ranks as text; if nil, the page does not offer stacks.
	Stacks func(ctx context.Context, source view.Source, job string) (string, error)
	// Metrics answers requests with the MetricsToken; if nil there are no metrics. With metrics the
	// model also runs while no page is open.
	Metrics      http.Handler
	MetricsToken string
	// Links is called with each new link: the first before Serve answers, and the next whenever one
	// was used. A link works once.
	Links func(path string)
	// Every is the interval at which pages are updated; a second when 0.
	Every time.Duration
}

// Limits of the server. A page of 8,000 ranks is under 1 MiB; larger pages are updated less often.
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

// Server serves the page. It is safe for concurrent use.
type Server struct {
	opts    Options
	gate    *gate
	feed    *feed
	streams chan struct{}
	stacks  sync.Mutex
}

// New returns a server. Serve starts it.
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

// Serve answers browsers on a listener until ctx ends, and closes it. A Server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: patience, ReadTimeout: patience, IdleTimeout: 2 * time.Minute,
		WriteTimeout: stackPatience + patience, // streams have limits of their own
		ConnContext:  withPlace,
	}
	ended := context.AfterFunc(ctx, func() { _ = h.Close() }) // no client waits for a partial response
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
