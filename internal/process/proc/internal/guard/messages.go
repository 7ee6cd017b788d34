package guard

import (
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
)

// send sends a message to the guardian, with files. A guardian that cannot take the message is dead
// or is killed here. Its successor gets the whole state, so the caller must change the state before
// it calls send.
func (g *Guard) send(fds []int, words ...string) {
	if g.sock < 0 {
		return
	}
	if errors.Is(frame.Send(frame.FD(g.sock), frame.Words(words), fds...), unix.EAGAIN) {
		g.kill()
	}
}

// sendAll sends a new guardian the whole state, the origin before any trail.
func (g *Guard) sendAll() {
	s := g.opts.Since
	g.send(nil, "origin", g.opts.Cgroup, g.opts.Record,
		strconv.FormatInt(int64(s.At), 10), strconv.Itoa(s.Last), strconv.FormatUint(s.Forks, 10), strconv.FormatUint(s.Threads, 10))
	if g.opts.Subreaper {
		g.send(nil, "adopter", strconv.Itoa(os.Getpid()), strconv.Itoa(g.opts.Session))
	}
	for _, t := range g.trails {
		g.sendTrail(t)
	}
	g.sendHeld()
	g.sendLease()
}

func (g *Guard) sendTrail(t sweep.Trail) {
	g.send(nil, "scope", t.Marker, t.Cgroup)
	if t.Cgroup == "" {
		for _, session := range t.Sessions {
			g.sendSession(t.Marker, session)
		}
	}
}

func (g *Guard) sendSession(marker string, session int) {
	g.send(nil, "session", marker, strconv.Itoa(session))
}

// sendHeld must be called after all trails were sent: a guardian that can prove the death of the
// ranks must know them all.
func (g *Guard) sendHeld() {
	g.send(g.held, "hold", hex.EncodeToString(g.starved[:]), hex.EncodeToString(g.proof[:]))
}

// Add guards a scope.
func (g *Guard) Add(t sweep.Trail) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trails[t.Marker] = t
	g.sendTrail(t)
}

// AddSession adds a session to a scope that has no cgroup.
func (g *Guard) AddSession(marker string, session int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.trails[marker]
	t.Sessions = append(t.Sessions, session)
	g.trails[marker] = t
	g.sendSession(marker, session)
}

// Drop stops guarding a scope, which must be empty.
func (g *Guard) Drop(marker string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.trails, marker)
	g.send(nil, "drop", marker)
}

// Renew sets the end of the lease, by CLOCK_BOOTTIME: the guardian kills all ranks then. 0 means
// never.
func (g *Guard) Renew(end time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Store(int64(end))
	g.sendLease()
}

// sendLease sends the count of kills for want of memory too. The guardian must not count them
// itself when it reads the message, because the owner may have been killed before that.
func (g *Guard) sendLease() {
	g.send(nil, "lease", strconv.FormatInt(g.lease.Load(), 10), strconv.FormatUint(g.oom.Kills(), 10))
}

// Expired reports whether the lease has ended by a time.
func (g *Guard) Expired(now time.Duration) bool {
	end := g.lease.Load()
	return end != 0 && int64(now) > end
}

// Hold replaces the sockets that end with the proof once no rank lives: [guardian.MaxHeld] at most.
// The guard owns the new sockets.
func (g *Guard) Hold(fds []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	frame.Close(g.held)
	g.held = fds
	g.sendHeld()
}
