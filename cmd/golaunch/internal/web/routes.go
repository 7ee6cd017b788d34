package web

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// policy lets a page load only files of this server, treats no text as markup, and forbids frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"

// Handler answers requests of browsers.
func (s *Server) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", s.page)
	m.HandleFunc("GET /login", s.login)
	m.HandleFunc("GET /{file}", asset)
	if s.opts.Metrics != nil {
		m.HandleFunc("GET /metrics", s.metrics)
	}
	m.HandleFunc("GET /api/events", s.guarded(s.events))
	m.HandleFunc("GET /api/logs", s.guarded(s.logs))
	if s.opts.AllowStop {
		m.HandleFunc("POST /api/stop", s.guarded(s.stop))
	}
	if s.opts.Stacks != nil {
		m.HandleFunc("POST /api/stacks", s.guarded(s.takeStacks))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if !s.gate.knows(r.Host) && !s.forScrapers(r) {
			s.refuse(w, r, "This is not the address of the dashboard",
				"The browser asked for "+r.Host+". Use 127.0.0.1, or the address that golaunch dashboard has printed.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		m.ServeHTTP(w, r)
	})
}

// forScrapers reports whether a request is for the metrics. For such requests the token decides,
// since a Prometheus may use any name for this machine.
func (s *Server) forScrapers(r *http.Request) bool {
	return s.opts.Metrics != nil && r.URL.Path == "/metrics"
}

func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// guarded admits pages of this server with a session.
func (s *Server) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !native(r) {
			fail(w, http.StatusForbidden, errors.New("the request comes from another site"))
			return
		}
		until, ok := s.gate.holds(r)
		if !ok {
			fail(w, http.StatusForbidden, errors.New("this browser has no session: open the newest link that golaunch dashboard has printed"))
			return
		}
		welcome(r)
		ctx, cancel := context.WithDeadline(r.Context(), until)
		defer cancel()
		next(w, r.WithContext(ctx))
	}
}

// metrics answers a Prometheus, which has a token and no cookie. A browser never sends this token
// by itself, so foreign pages cannot read the metrics through a browser.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || s.opts.MetricsToken == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.opts.MetricsToken)) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "the metrics need the token: set authorization.credentials_file in the scrape config to a copy of the file of --metrics-token-file\n")
		return
	}
	welcome(r)
	s.await(r.Context())
	s.opts.Metrics.ServeHTTP(w, r)
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if _, known := s.gate.session(r); !known {
		s.refuse(w, r, "A link is needed", "Open the newest link that golaunch dashboard has printed in its terminal. "+
			"A link works once, in one browser; when it was used, the terminal shows the next.")
		return
	}
	welcome(r)
	write(w, "text/html; charset=utf-8", file("index.html"))
}

// login exchanges a token for a session, but only when the link is opened, not when a program
// previews it. It answers with a page that requests the next page. A redirect would count as a
// request of the site on which the link was clicked, so the browser would not send a cookie with
// SameSite=Strict.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		write(w, "text/html; charset=utf-8", nil)
		return
	}
	session, ok := s.gate.enter(r.URL.Query().Get("token"))
	if !ok {
		s.refuse(w, r, "This link was used", "Each link works once. The newest is the last that golaunch dashboard has printed in its terminal.")
		return
	}
	http.SetCookie(w, newCookie(r, session))
	s.opts.Links(s.gate.link())
	write(w, "text/html; charset=utf-8", fmt.Appendf(nil, "%s", message("golaunch",
		`<meta name="key" content="`+s.gate.key(session)+`"><script type="module" src="/login.js"></script>`,
		`<h1>Opening the dashboard</h1><noscript><p>The dashboard needs JavaScript.</p></noscript><p><a href="/">Go on</a></p>`)))
}

// refuse answers with a page that says why access is refused.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, title, why string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, message("golaunch: "+title, "", "<h1>"+html.EscapeString(title)+"</h1><p>"+html.EscapeString(why)+"</p>"+
		"<p>If the dashboard runs on another machine, forward its port and open the link here: <code>"+html.EscapeString(s.forward(r))+"</code></p>"))
}

// forward is the command that forwards the server's port to another machine. It does not reveal
// this machine's name to a foreign page.
func (s *Server) forward(r *http.Request) string {
	machine := "MACHINE"
	if s.gate.knows(r.Host) {
		machine = cmp.Or(s.gate.machine, machine)
	}
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return Forward(at, machine)
}

// Forward is the command that forwards a server's port to the user's own machine. It contains the
// address, because "localhost" may be another address, where another user may listen.
func Forward(at net.Addr, machine string) string {
	host, port := "127.0.0.1", "PORT"
	if tcp, ok := at.(*net.TCPAddr); ok {
		host, port = tcp.IP.String(), strconv.Itoa(tcp.Port)
	}
	return "ssh -L " + port + ":" + net.JoinHostPort(host, port) + " " + machine
}

// message is a small page; body is HTML.
func message(title, head, body string) string {
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">` +
		"<title>" + html.EscapeString(title) + `</title><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css">` + head +
		`</head><body class="message"><main>` + body + "</main></body></html>\n"
}

// fail answers a request of the page with an error in one line.
func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text(err.Error(), maxReason)}) // the browser may be gone
}

func write(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // the browser may be gone
}

// named returns the job of a request and its source.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (id string, source view.Source, ok bool) {
	var asked struct{ Job string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("cannot read which job it is about: %w", err))
		return "", nil, false
	}
	source, err := s.source(r.Context(), asked.Job)
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return "", nil, false
	}
	return asked.Job, source, true
}

// source returns the source that has a job. For coordinators an empty name means all jobs; here it
// means none.
func (s *Server) source(ctx context.Context, job string) (view.Source, error) {
	if job == "" {
		return nil, errors.New("which job? its name is missing")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := []error{fmt.Errorf("no coordinator has a job %q", job)}
	for _, source := range s.opts.Sources() {
		status, err := source.Query(ctx, report.Query{Job: job, Jobs: true, Brief: true})
		if err == nil && slices.ContainsFunc(status.Jobs, func(j report.JobStatus) bool { return j.ID == job }) {
			return source, nil
		}
		if err != nil && !errors.Is(err, launcher.ErrNotThere) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	id, source, ok := s.named(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	stopped, err := source.Stop(ctx, id, launcher.CodeStopped, "stopped on the dashboard")
	if err != nil {
		fail(w, http.StatusBadGateway, fmt.Errorf("cannot stop job %s: %w", id, err))
		return
	}
	s.answer(w, map[string][]string{"stopped": stopped})
}

// Limits of stacks, which are taken for one page at a time.
const (
	maxStacks     = 4 << 20
	stackPatience = 2 * time.Minute
)

func (s *Server) takeStacks(w http.ResponseWriter, r *http.Request) {
	id, source, ok := s.named(w, r)
	if !ok {
		return
	}
	if !s.stacks.TryLock() {
		fail(w, http.StatusConflict, errors.New("stacks are being taken already; try again when they are there"))
		return
	}
	defer s.stacks.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), stackPatience)
	defer cancel()
	found, err := s.opts.Stacks(ctx, source, id)
	if err != nil {
		fail(w, http.StatusBadGateway, fmt.Errorf("cannot take the stacks of job %s: %w", id, err))
		return
	}
	s.answer(w, map[string]string{"stacks": paragraph(found, maxStacks)})
}

func (s *Server) answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	write(w, "application/json", body)
}
