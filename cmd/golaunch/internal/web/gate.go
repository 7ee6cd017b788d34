package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// gate decides who may see the page. A link has a token that works once and starts a session. A
// session has two halves: the name of a cookie that scripts cannot read, and a key that the page
// keeps for its origin and sends with its requests. A browser sends a cookie to every port of a
// host, so another user who listens at a port may get the cookie, but never the key.
type gate struct {
	secret []byte
	hosts  []string
	// machine is the name of this machine; empty if it has no name.
	machine string

	mu    sync.Mutex
	token string
	// sessions are the newest sessions, the oldest of these first.
	sessions []session
}

// session has the half of a session that is in the cookie, and when the session ends.
type session struct {
	name  string
	until time.Time
}

// sessionLives is how long one link admits a browser.
const sessionLives = 12 * time.Hour

// maxSessions bounds the admitted browsers. After one more, the oldest needs a new link.
const maxSessions = 64

// keyHeader carries the key of a session. A page of another origin cannot send it.
const keyHeader = "X-Golaunch-Key"

func newGate(host string) *gate {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // Read never fails
	hosts := []string{"localhost", strings.ToLower(host)}
	machine, err := os.Hostname()
	if err == nil {
		hosts = append(hosts, strings.ToLower(machine))
	}
	return &gate{secret: secret, hosts: hosts, machine: machine, token: rand.Text() + rand.Text()}
}

// link returns the path with the newest token.
func (g *gate) link() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "/login?token=" + g.token
}

// enter exchanges a token for a session. The token is then void.
func (g *gate) enter(token string) (name string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 {
		return "", false
	}
	g.token = rand.Text() + rand.Text()
	name = rand.Text() + rand.Text()
	g.sessions = append(g.sessions, session{name, time.Now().Add(sessionLives)})
	g.sessions = g.sessions[max(0, len(g.sessions)-maxSessions):]
	return name, true
}

// key is the other half of a session.
func (g *gate) key(name string) string {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil))
}

// session returns the session of a request's cookie, if it is known and has not ended.
func (g *gate) session(r *http.Request) (session, bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return session{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.sessions, func(s session) bool { return subtle.ConstantTimeCompare([]byte(s.name), []byte(c.Value)) == 1 })
	if i < 0 || !time.Now().Before(g.sessions[i].until) {
		return session{}, false
	}
	return g.sessions[i], true
}

// holds reports whether a request has both halves of a session, and when the session ends.
func (g *gate) holds(r *http.Request) (until time.Time, ok bool) {
	s, known := g.session(r)
	return s.until, known && subtle.ConstantTimeCompare([]byte(g.key(s.name)), []byte(r.Header.Get(keyHeader))) == 1
}

// cookieName includes the port, since all ports of a host share their cookies.
func cookieName(r *http.Request) string {
	_, port := split(r.Host)
	return "golaunch-" + port
}

func newCookie(r *http.Request, name string) *http.Cookie {
	return &http.Cookie{Name: cookieName(r), Value: name, Path: "/", MaxAge: int(sessionLives.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// knows reports whether the browser means this server. A foreign page whose host name resolves to
// this machine sends that name as host, so unknown names are refused. An address is safe, since it
// cannot resolve to another address.
func (g *gate) knows(host string) bool {
	name, _ := split(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name != "" && slices.Contains(g.hosts, strings.ToLower(name))
}

// native reports whether a request comes from a page of this server, or from no page at all.
func native(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" && r.Method != http.MethodPost || origin == "http://"+r.Host
}

func split(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "80"
	}
	return strings.Trim(name, "[]"), port
}
