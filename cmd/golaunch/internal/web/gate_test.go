package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// visitor acts like a browser, with a cookie and a key.
type visitor struct {
	cookie, key string
}

// ask sends a request with some headers, and returns the answer and its body; for a stream, the
// body is its first line.
func (v visitor) ask(t *testing.T, method, at, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	if v.key != "" {
		r.Header.Set(keyHeader, v.key)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		line, err := bufio.NewReader(answer.Body).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return answer, line
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// visit opens a link.
func visit(t *testing.T, link string) visitor {
	t.Helper()
	answer, body := visitor{}.ask(t, "GET", link, "")
	key := regexp.MustCompile(`<meta name="key" content="([0-9a-f]{64})">`).FindStringSubmatch(body)
	if answer.StatusCode != http.StatusOK || len(answer.Cookies()) != 1 || key == nil {
		t.Fatalf("%s: %s\n%s", link, answer.Status, body)
	}
	c := answer.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	return visitor{c.Name + "=" + c.Value, key[1]}
}

// TestWhichRequestsAreServed: both halves of a session are required, and pages of other sites are
// refused even with both.
func TestWhichRequestsAreServed(t *testing.T) {
	s := serve(t, cluster(1), func(o *Options) { o.AllowStop = true })
	first := <-s.links
	good := visit(t, first)
	other := visit(t, <-s.links)
	evil := strings.Replace(s.base, "127.0.0.1", "evil.example", 1)
	events := "/api/events?page=cluster"
	for _, c := range []struct {
		name         string
		who          visitor
		method, path string
		headers      []string
		code         int
		says         string
	}{
		{"the page", good, "GET", "/", nil, 200, `<main id="main"`},
		{"its data", good, "GET", events, []string{"Sec-Fetch-Site", "same-origin", "Origin", s.base}, 200, "data: {"},
		{"another browser", other, "GET", events, nil, 200, "data: {"},
		{"a script, which is no secret", visitor{}, "GET", "/app.js", nil, 200, "import"},
		{"no session", visitor{}, "GET", "/", nil, 403, "A link is needed"},
		{"data without a session", visitor{}, "GET", events, nil, 403, "open the newest link"},
		{"a used link", visitor{}, "GET", strings.TrimPrefix(first, s.base), nil, 403, "Each link works once"},
		{"an empty token", visitor{}, "GET", "/login?token=", nil, 403, "Each link works once"},
		{"a cookie without its key", visitor{cookie: good.cookie}, "GET", events, nil, 403, "no session"},
		{"a key without its cookie", visitor{key: good.key}, "GET", events, nil, 403, "no session"},
		{"the key of another session", visitor{good.cookie, other.key}, "GET", events, nil, 403, "no session"},
		{"a cookie of a server that has ended", visitor{cookie: regexp.MustCompile(`=.*`).ReplaceAllString(good.cookie, "=OLD")}, "GET", "/", nil, 403, "A link is needed"},
		{"a name that was made to lead here", good, "GET", events, []string{"Host", strings.TrimPrefix(evil, "http://")}, 403, "not the address"},
		{"no name", good, "GET", events, []string{"Host", ":80"}, 403, "not the address"},
		{"a page of elsewhere", good, "GET", events, []string{"Origin", "http://evil.example"}, 403, "another site"},
		{"a page of another port", good, "GET", events, []string{"Sec-Fetch-Site", "same-site"}, 403, "another site"},
		{"a sandboxed page", good, "GET", events, []string{"Origin", "null"}, 403, "another site"},
		{"a POST of elsewhere", good, "POST", "/api/stop", []string{"Origin", "http://evil.example"}, 403, "another site"},
		{"a POST of nowhere", good, "POST", "/api/stop", nil, 403, "another site"},
		{"a POST without the key", visitor{cookie: good.cookie}, "POST", "/api/stop", []string{"Origin", s.base}, 403, "no session"},
		{"a POST to what is read", good, "POST", events, []string{"Origin", s.base}, 405, ""},
		{"what is not there", good, "GET", "/index.html", nil, 404, "there is no such page"},
		{"what is above", good, "GET", "/..%2fweb.go", nil, 404, "there is no such page"},
		{"an unknown page", good, "GET", "/api/events?page=x", nil, 400, "no page"},
		{"a job without a name", good, "GET", "/api/events?page=job", nil, 400, "its name is missing"},
		{"the log of no job", good, "GET", "/api/logs?job=nope", nil, 404, `no coordinator has a job \"nope\"`},
		{"the log of unknown ranks", good, "GET", "/api/logs?job=llama-70b&ranks=3-1", nil, 400, "0,8-15"},
		{"stacks, which are not offered", good, "POST", "/api/stacks", []string{"Origin", s.base}, 404, ""},
	} {
		answer, body := c.who.ask(t, c.method, s.base+c.path, `{"job":"llama-70b"}`, c.headers...)
		if answer.StatusCode != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s: %s, want %d and %q:\n%.300s", c.name, answer.Status, c.code, c.says, body)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", c.name, name, got)
			}
		}
	}
	if len(s.cluster.Stopped) > 0 {
		t.Errorf("%q were stopped", s.cluster.Stopped)
	}
}

func TestStop(t *testing.T) {
	s := serve(t, cluster(1), func(o *Options) { o.AllowStop = true })
	v := visit(t, <-s.links)
	post := func(body string) (int, string) {
		answer, text := v.ask(t, "POST", s.base+"/api/stop", body, "Origin", s.base)
		return answer.StatusCode, text
	}
	for body, says := range map[string]string{
		`{"job":""}`: "which job?", `{}`: "which job?", `{"job":"nope"}`: "no coordinator has a job", `{`: "cannot read", strings.Repeat(" ", maxBody+1) + "{}": "cannot read",
	} {
		if code, text := post(body); code < 400 || !strings.Contains(text, says) {
			t.Errorf("%.20s: %d %s, want %q", body, code, text, says)
		}
	}
	if len(s.cluster.Stopped) > 0 {
		t.Fatalf("%q were stopped", s.cluster.Stopped)
	}
	if code, text := post(`{"job":"llama-70b"}`); code != 200 || !slices.Equal(s.cluster.Stopped, []string{"llama-70b"}) {
		t.Errorf("%d %s: %q were stopped", code, text, s.cluster.Stopped)
	}
	reader := serve(t, cluster(1), nil)
	v = visit(t, <-reader.links)
	if answer, _ := v.ask(t, "POST", reader.base+"/api/stop", `{"job":"llama-70b"}`, "Origin", reader.base); answer.StatusCode != 404 {
		t.Errorf("without --allow-stop: %s", answer.Status)
	}
}

// TestSessionsAreBounded: the oldest must log in again.
func TestSessionsAreBounded(t *testing.T) {
	s := serve(t, cluster(1), nil)
	oldest := visit(t, <-s.links)
	for range maxSessions - 1 {
		visit(t, <-s.links)
	}
	if answer, _ := oldest.ask(t, "GET", s.base+"/", ""); answer.StatusCode != 200 {
		t.Errorf("the oldest of %d sessions: %s", maxSessions, answer.Status)
	}
	visit(t, <-s.links)
	if answer, _ := oldest.ask(t, "GET", s.base+"/", ""); answer.StatusCode != 403 {
		t.Errorf("the oldest of %d sessions: %s", maxSessions+1, answer.Status)
	}
}

// TestSessionsEnd: sessions end after some hours, and with them the streams that the browser still
// reads.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Host: "localhost"})
		name, _ := s.gate.enter(s.gate.token)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
		r.Header.Set("Cookie", newCookie(r, name).String())
		r.Header.Set(keyHeader, s.gate.key(name))
		ask := func(next http.HandlerFunc) int {
			answer := httptest.NewRecorder()
			s.guarded(next)(answer, r)
			return answer.Code
		}
		began := time.Now()
		if code := ask(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }); code != 200 || time.Since(began) != sessionLives {
			t.Errorf("%d; what was read ended after %v", code, time.Since(began))
		}
		if code := ask(func(http.ResponseWriter, *http.Request) { t.Error("it is let in") }); code != 403 {
			t.Errorf("after %v: %d", sessionLives, code)
		}
	})
}

// TestALinkIsOpenedOnce: a link works once, and a preview of it does not use it up.
func TestALinkIsOpenedOnce(t *testing.T) {
	s := serve(t, cluster(1), nil)
	link := <-s.links
	if answer, _ := (visitor{}).ask(t, "HEAD", link, ""); answer.StatusCode != 200 || len(answer.Cookies()) > 0 {
		t.Errorf("%s, with the cookies %v", answer.Status, answer.Cookies())
	}
	visit(t, link)
	at := strings.TrimPrefix(s.base, "http://")
	_, port := split(at)
	for host, machine := range map[string]string{at: s.gate.machine, "evil.example": "MACHINE"} {
		_, body := visitor{}.ask(t, "GET", link, "", "Host", host)
		if want := "<code>ssh -L " + port + ":127.0.0.1:" + port + " " + machine + "</code>"; !strings.Contains(body, want) {
			t.Errorf("there is no %s in %s", want, body)
		}
	}
}

// TestHosts: the server accepts addresses, and the names of the user and of the machine.
func TestHosts(t *testing.T) {
	g := newGate("login01.example")
	for host, want := range map[string]bool{
		"localhost:8265": true, "LOCALHOST:1": true, "localhost": true, "127.0.0.1:8265": true, "[::1]:8265": true, "10.1.2.3": true, "login01.example:8265": true,
		"": false, ":8265": false, "evil.example:8265": false, "localhost.evil.example": false, "login01.example.evil.example:8265": false, "127.0.0.1.evil.example": false,
	} {
		if got := g.knows(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// TestStreamsAreBounded: one page too many gets an error.
func TestStreamsAreBounded(t *testing.T) {
	s := serve(t, cluster(1), nil)
	v := visit(t, <-s.links)
	for range maxStreams {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.base+"/api/events?page=cluster", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", v.cookie)
		r.Header.Set(keyHeader, v.key)
		answer, err := (&http.Transport{}).RoundTrip(r)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		defer answer.Body.Close()
	}
	if answer, text := v.ask(t, "GET", s.base+"/api/events?page=cluster", ""); answer.StatusCode != 503 || !strings.Contains(text, "too many pages") {
		t.Errorf("%s %s", answer.Status, text)
	}
}

// pipes is a listener for connections without buffers.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestASlowReader: if a browser does not read the answer that it has requested, its connection is
// closed, and its place is free.
func TestASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := map[string]view.Source{"here": cluster(1)}
		s := New(Options{Model: view.New(sources, view.Options{}), Sources: func() map[string]view.Source { return sources }, Host: "localhost"})
		session, _ := s.gate.enter(s.gate.token)
		l := pipes{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		for _, path := range []string{"/api/events?page=cluster", "/api/logs?job=llama-70b"} {
			browser, conn := net.Pipe()
			l.conns <- conn
			fmt.Fprintf(browser, "GET %s HTTP/1.1\r\nHost: localhost\r\nCookie: golaunch-80=%s\r\n%s: %s\r\n\r\n", path, session, keyHeader, s.gate.key(session))
			time.Sleep(patience / 2) // takes no time in a synctest bubble
			synctest.Wait()
			if len(s.streams) != 1 {
				t.Errorf("%s: %d streams are open", path, len(s.streams))
			}
			time.Sleep(patience) // takes no time in a synctest bubble
			synctest.Wait()
			if len(s.streams) != 0 {
				t.Errorf("%s: %d streams are open to a client that does not read", path, len(s.streams))
			}
			browser.Close()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// FuzzHost: only an address or a known name passes, and no host causes a panic.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost:1", "[::1]", "[::1", "a:b:c", "127.0.0.1%eth0", "", "xn--80ak6aa92e.com:80"} {
		f.Add(host, "page=job&name=a&heat=power")
	}
	f.Fuzz(func(t *testing.T, host, rawQuery string) {
		g := newGate("127.0.0.1")
		if g.knows(host) {
			name, _ := split(host)
			if net.ParseIP(strings.Split(name, "%")[0]) == nil && !slices.Contains(g.hosts, strings.ToLower(name)) {
				t.Errorf("%q is let in", host)
			}
		}
		values, err := url.ParseQuery(rawQuery)
		if err != nil {
			return
		}
		if q, err := parseQuery(values); err == nil && (q.page != "cluster" && q.name == "" || q.page == "job" && meters[q.heat] == nil) {
			t.Errorf("%q is %+v", rawQuery, q)
		}
		if spans, err := parseRanks(rawQuery); err == nil {
			for _, s := range spans {
				if s.From < 0 || s.To < s.From {
					t.Errorf("%q is %v", rawQuery, spans)
				}
			}
		}
	})
}

// TestStacks asks the source that has the job, for one page at a time.
func TestStacks(t *testing.T) {
	asked, release := make(chan string), make(chan struct{})
	s := serve(t, cluster(1), func(o *Options) {
		o.Stacks = func(_ context.Context, _ view.Source, job string) (string, error) {
			asked <- job
			<-release
			return "main\n\x1b[31mforward\n", fmt.Errorf("node %s is gone", job)
		}
	})
	v := visit(t, <-s.links)
	first := make(chan string)
	go func() {
		answer := httptest.NewRecorder()
		r := httptest.NewRequest("POST", s.base+"/api/stacks", strings.NewReader(`{"job":"llama-70b"}`))
		r.Header.Set("Origin", s.base)
		r.Header.Set("Cookie", v.cookie)
		r.Header.Set(keyHeader, v.key)
		s.Handler().ServeHTTP(answer, r)
		first <- answer.Body.String()
	}()
	if job := <-asked; job != "llama-70b" {
		t.Errorf("the stacks of %q are taken", job)
	}
	if answer, text := v.ask(t, "POST", s.base+"/api/stacks", `{"job":"llama-70b"}`, "Origin", s.base); answer.StatusCode != 409 {
		t.Errorf("a second page: %s %s", answer.Status, text)
	}
	close(release)
	var said struct{ Error string }
	if text := <-first; json.Unmarshal([]byte(text), &said) != nil || !strings.Contains(said.Error, "node llama-70b is gone") {
		t.Errorf("%s", text)
	}
}

// TestMetrics: metrics need their token; a session is not enough, and the token is no session.
func TestMetrics(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	s := serve(t, cluster(1), func(o *Options) {
		o.MetricsToken = token
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "jobs", len(o.Model.State().Jobs))
		})
	})
	v := visit(t, <-s.links)
	for _, c := range []struct {
		name    string
		who     visitor
		headers []string
		code    int
		says    string
	}{
		{"its token", visitor{}, []string{"Authorization", "Bearer " + token}, 200, "jobs 3"},
		{"no token", visitor{}, nil, 401, "authorization.credentials_file"},
		{"a session alone", v, nil, 401, "authorization.credentials_file"},
		{"another token", visitor{}, []string{"Authorization", "Bearer x" + token}, 401, "authorization.credentials_file"},
		{"an empty token", visitor{}, []string{"Authorization", "Bearer "}, 401, "authorization.credentials_file"},
		{"another kind", visitor{}, []string{"Authorization", "Basic " + token}, 401, "authorization.credentials_file"},
		{"a scheme in another case", visitor{}, []string{"Authorization", "bearer " + token}, 200, "jobs 3"},
		{"a name that Prometheus knows", visitor{}, []string{"Authorization", "Bearer " + token, "Host", "login.example"}, 200, "jobs 3"},
		{"that name without a token", visitor{}, []string{"Host", "login.example"}, 401, "authorization.credentials_file"},
	} {
		answer, body := c.who.ask(t, "GET", s.base+"/metrics", "", c.headers...)
		if answer.StatusCode != c.code || !strings.Contains(body, c.says) || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %s, want %d and %q:\n%.300s", c.name, answer.Status, c.code, c.says, body)
		}
	}
	without := serve(t, cluster(1), nil)
	if answer, _ := (visitor{}).ask(t, "GET", without.base+"/metrics", "", "Authorization", "Bearer "); answer.StatusCode != 404 {
		t.Errorf("without a token file: %s", answer.Status)
	}
}
