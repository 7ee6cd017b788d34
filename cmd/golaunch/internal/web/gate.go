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

// gate decides who may see the page. A link has a token that works once, and makes a session of it. A session has two halves: the name of
// a cookie's, which scripts do not see, and a key, which the page keeps for its origin and sends along. A browser sends a cookie to every
// port of a host, where another user of it may listen; a key it does not.
type gate struct {
	secret []byte
	hosts  []string
	// machine is the name of this one; empty if it has none.
	machine string

	mu    sync.Mutex
	token string
	// sessions are the newest ones, the oldest first.
	sessions []session
}

// session is the half of a session that is in the cookie, and when it ends.
type session struct {
	name  string
	until time.Time
}

// sessionLives is how long a browser is let in by one link.
const sessionLives = 12 * time.Hour

// maxSessions bounds the browsers that are let in at a time; one more, and the oldest has to come by a new link.
const maxSessions = 64

// keyHeader has the key of a session. No page of another origin can send it.
const keyHeader = "X-Golaunch-Key"

func newGate(host string) *gate {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	hosts := []string{"localhost", strings.ToLower(host)}
	machine, err := os.Hostname()
	if err == nil {
		hosts = append(hosts, strings.ToLower(machine))
	}
	return &gate{secret: secret, hosts: hosts, machine: machine, token: rand.Text() + rand.Text()}
}

// link is the path with the newest token.
func (g *gate) link() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "/login?token=" + g.token
}

// enter makes a session of a token, which is of no use any more.
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

// session is that of a request's cookie, if it is known and has not ended.
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

// holds says that a request has both halves of a session, and until when that lets it in.
func (g *gate) holds(r *http.Request) (until time.Time, ok bool) {
	s, known := g.session(r)
	return s.until, known && subtle.ConstantTimeCompare([]byte(g.key(s.name)), []byte(r.Header.Get(keyHeader))) == 1
}

// cookieName differs between the ports that a browser knows a host by, since they share their cookies.
func cookieName(r *http.Request) string {
	_, port := split(r.Host)
	return "golaunch-" + port
}

func newCookie(r *http.Request, name string) *http.Cookie {
	return &http.Cookie{Name: cookieName(r), Value: name, Path: "/", MaxAge: int(sessionLives.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// knows says that a browser means this server: a page of elsewhere whose name was made to lead here has that name as the host. Addresses
// lead where they say.
func (g *gate) knows(host string) bool {
	name, _ := split(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name != "" && slices.Contains(g.hosts, strings.ToLower(name))
}

// native says that a request is of a page of this server, or of none.
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
