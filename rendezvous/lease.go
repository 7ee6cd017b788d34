package rendezvous

import (
	"sync"
	"time"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// pulse tells since when an agent is silent. Streams may use it beside the coordinator: heartbeats are answered by the goroutine that reads
// them, where nobody else may have come to coordinate, so that those of thousands wait for nothing, and least of all for a failure of as many
// ranks.
type pulse struct {
	// patience is how long it may say nothing, by the lease that it was given, and silence the timer that tells when that is over.
	patience time.Duration
	silence  *time.Timer

	mu    sync.Mutex
	heard time.Time
	// link is where heartbeats are answered, if anywhere: a node that is, or may be, counted as lost must not believe that it still has its lease.
	on *link
}

func (p *pulse) begin(patience time.Duration, silent func()) {
	p.patience, p.heard = patience, time.Now()
	p.silence = time.AfterFunc(patience, silent)
}

// hear notes that the agent has said something.
func (p *pulse) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listened()
}

func (p *pulse) listened() {
	p.heard = time.Now()
	p.silence.Reset(p.patience)
}

// beats hears a heartbeat on a link, unless none is answered there.
func (p *pulse) beats(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on != l {
		return false
	}
	p.listened()
	return true
}

// answers has heartbeats be answered on that link alone; on none when it is nil.
func (p *pulse) answers(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = l
}

// since is when the agent was last heard.
func (p *pulse) since() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// late is by how much its silence has been too long at a time; no heartbeat is answered any more if it has.
func (p *pulse) late(at time.Time) (heard time.Time, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	late = at.Sub(p.heard) - p.patience
	if late >= 0 {
		p.on = nil
	}
	return p.heard, late
}

// beat answers a heartbeat.
func (c *Coordinator) beat(m *member, l *link, b *pb.Heartbeat) {
	if !m.beats(l) {
		return
	}
	if !l.push(&pb.ToAgent{Acked: m.taken.Load(), Body: &pb.ToAgent_Heartbeat{Heartbeat: echo(b)}}) {
		c.post(func() { c.clogged(m, l) })
	}
}
