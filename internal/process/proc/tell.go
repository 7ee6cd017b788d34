package proc

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tell sends a message, with files. A guardian that cannot take it is dead or ended here, and its successor is
// told everything: the state that a message is about changes first.
func (g *guard) tell(fds []int, words ...string) {
	if g.sock < 0 {
		return
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	err := unix.EINTR
	for err == unix.EINTR {
		err = sendmsg(g.sock, strings.Join(words, "\x00"), rights)
	}
	if err == unix.EAGAIN {
		g.kill()
	}
}

func sendmsg(sock int, text string, rights []byte) unix.Errno {
	err := unix.Sendmsg(sock, []byte(text), rights, nil, unix.MSG_NOSIGNAL)
	errno, _ := errors.AsType[unix.Errno](err)
	return errno
}

// tellOrigin comes before all trails.
func (g *guard) tellOrigin() {
	var home, path string
	if g.sup.home != nil {
		home = g.sup.home.dir
	}
	if g.sup.record != nil {
		path = g.sup.record.path
	}
	since, _ := json.Marshal(g.sup.since) // numbers
	g.tell(nil, "origin", home, path, string(since))
}

func (g *guard) tellTrail(t trail) {
	g.tell(nil, "scope", t.marker, t.cgroup)
	if t.cgroup == "" {
		for _, session := range t.sessions {
			g.tell(nil, "session", t.marker, strconv.Itoa(session))
		}
	}
}

// add makes the guardian responsible for a scope.
func (g *guard) add(t trail) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trails[t.marker] = t
	g.tellTrail(t)
}

// track adds a session to a scope that has no cgroup.
func (g *guard) track(marker string, session int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.trails[marker]
	t.sessions = append(t.sessions, session)
	g.trails[marker] = t
	g.tell(nil, "session", marker, strconv.Itoa(session))
}

// drop ends the responsibility for a scope, which must be empty.
func (g *guard) drop(marker string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.trails, marker)
	g.tell(nil, "drop", marker)
}

func (g *guard) renew(end time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Store(int64(end))
	g.tell(nil, "lease", strconv.FormatInt(int64(end), 10))
}

// hold takes ownership of the files.
func (g *guard) hold(fds []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closeAll(g.held)
	g.held = fds
	g.tellHeld()
}

// tellHeld comes after all trails: who could prove that they are dead must know them.
func (g *guard) tellHeld() { g.tell(g.held, "hold", hex.EncodeToString(g.starved[:])) }

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
