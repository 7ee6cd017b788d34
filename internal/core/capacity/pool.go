package capacity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Claim is a node that was asked of a provider, until the provider has it no more (Karpenter's
// NodeClaim).
type Claim struct {
	// Tag is its name towards the provider, unique for all time. Seq is its number.
	Tag  string
	Seq  int
	Kind string
	// Node is the name of its node, once that has joined.
	Node string
	// Requested is when it was asked for, Joined when its node last joined, Lost when that was
	// lost, and Released when it was given back or up; zero while it was not.
	Requested, Joined, Lost, Released time.Time
	// Left says that the lost node had been drained, and Failed that its node was a failure of its
	// kind.
	Left, Failed bool
	// Why is why it was asked for and, once it is released, why that was.
	Why string
}

// Backoff is how long a kind is left alone after failures.
type Backoff struct {
	Failures int
	Until    time.Time
	Why      string
}

// Pool is what was asked of providers. Only one goroutine uses it.
type Pool struct {
	// Asked counts all claims that there ever were.
	Asked    int
	Claims   map[string]Claim
	Backoffs map[string]Backoff
}

// NewPool returns a pool without claims.
func NewPool() *Pool { return &Pool{Claims: map[string]Claim{}, Backoffs: map[string]Backoff{}} }

// Event is something that happened to claims. Nodes that join and are lost are events of the
// cluster.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Requested adds claims for nodes of a kind.
	Requested struct {
		Kind  string
		Nodes int
		Why   string
	}
	// Released gives a claim back. The provider is asked to delete it until it is Gone.
	Released struct {
		Tag  string
		Code Code
		Why  string
	}
	// Failed says that the node of a claim is not what its kind promises.
	Failed struct{ Tag, Why string }
	// Gone says that the provider refused a claim or does not have it. A claim that was not
	// released is released by that: the provider may have been wrong.
	Gone struct{ Tag, Why string }
)

func (Requested) event() {}
func (Released) event()  {}
func (Failed) event()    {}
func (Gone) event()      {}

// Apply applies the next event. An event about a claim that is not there changes nothing. The epoch
// is the log's, by which tags of different logs differ.
func (p *Pool) Apply(at time.Time, epoch string, ev Event) {
	switch ev := ev.(type) {
	case Requested:
		for range ev.Nodes {
			p.Asked++
			tag := tagOf(ev.Kind, epoch, p.Asked)
			p.Claims[tag] = Claim{Tag: tag, Seq: p.Asked, Kind: ev.Kind, Requested: at, Why: ev.Why}
		}
	case Released:
		c, there := p.Claims[ev.Tag]
		if !there || !c.Released.IsZero() {
			return
		}
		if ev.Code == CodeLate {
			p.failed(at, c.Kind, ev.Why)
		}
		c.Released, c.Why = at, ev.Why
		p.Claims[ev.Tag] = c
	case Failed:
		if c, there := p.Claims[ev.Tag]; there && !c.Failed {
			p.failed(at, c.Kind, ev.Why)
			c.Failed = true
			p.Claims[ev.Tag] = c
		}
	case Gone:
		switch c, there := p.Claims[ev.Tag]; {
		case !there || c.Present():
		case !c.Released.IsZero():
			delete(p.Claims, ev.Tag)
		default:
			if c.Joined.IsZero() {
				p.failed(at, c.Kind, ev.Why)
			}
			c.Released, c.Why = at, ev.Why
			p.Claims[ev.Tag] = c
		}
	}
}

// Present reports whether the claim's node is there.
func (c Claim) Present() bool { return !c.Joined.IsZero() && c.Lost.IsZero() }

// Refuses says why a node must not join: its claim was given up, or another node has it. It is
// empty if the node may. So a node that its provider made or lost sight of too long ago does not
// come for a claim that is not there any more.
func (p *Pool) Refuses(epoch, node, tag string) string {
	switch c, ours := p.Claims[tag]; {
	case !ours && p.hasAsked(epoch, tag):
		return "it was given up"
	case !ours:
		return ""
	case !c.Released.IsZero():
		return "it was given up: " + c.Why
	case c.Present() && c.Node != node:
		return "node " + c.Node + " has the same tag"
	}
	return ""
}

// hasAsked reports whether a tag is one that the log with an epoch has ever had.
func (p *Pool) hasAsked(epoch, tag string) bool {
	i := strings.LastIndexByte(tag, '-')
	seq, err := strconv.Atoi(tag[i+1:])
	if err != nil || seq < 1 || seq > p.Asked {
		return false
	}
	kind, found := strings.CutSuffix(tag, tagOf("", epoch, seq))
	return found && kind != ""
}

// Joined notes that a node has joined that the pool does not refuse.
func (p *Pool) Joined(at time.Time, node, tag string) {
	if c, ours := p.Claims[tag]; ours {
		c.Node, c.Joined, c.Lost, c.Left = node, at, time.Time{}, false
		p.Claims[tag] = c
	}
}

// Lost notes that a node was lost, or has left after a drain.
func (p *Pool) Lost(at time.Time, node, tag string, drained bool) {
	if c, ours := p.Claims[tag]; ours && c.Node == node {
		c.Lost, c.Left = at, drained
		p.Claims[tag] = c
	}
}

// Sorted returns the claims, oldest first.
func (p *Pool) Sorted() []Claim {
	return slices.SortedFunc(maps.Values(p.Claims), func(a, b Claim) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Bounds on how long a kind is left alone after a failure.
const (
	minBackoff = 30 * time.Second
	maxBackoff = 15 * time.Minute
)

// failed leaves a kind alone. Claims that were made together fail together, as one failure.
func (p *Pool) failed(at time.Time, kind, why string) {
	b := p.Backoffs[kind]
	switch {
	case at.Before(b.Until):
		return
	case at.Sub(b.Until) > maxBackoff: // the kind has been well for long
		b.Failures = 0
	}
	wait := min(minBackoff<<min(b.Failures, 10), maxBackoff)
	p.Backoffs[kind] = Backoff{Failures: b.Failures + 1, Until: at.Add(wait), Why: why}
}

// epochLen is how much of an epoch a tag has: 30 bits.
const epochLen = 6

// tagOf is a DNS label (RFC 1123) if the kind's name is one of at most MaxKind bytes.
func tagOf(kind, epoch string, seq int) string {
	return kind + "-" + strings.ToLower(epoch[:min(len(epoch), epochLen)]) + "-" + strconv.Itoa(seq)
}

// MaxKind bounds the name of a kind.
const MaxKind = 40
