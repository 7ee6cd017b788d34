package capacity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Claim is the record of a node that was requested from a provider, until the provider no longer
// has the node. Karpenter calls it a NodeClaim.
type Claim struct {
	// Tag is the name by which the provider knows the node. It is unique for all time. Seq is the
	// claim's number.
	Tag  string
	Seq  int
	Kind string
	// Node is the name of the claim's node once the node has joined.
	Node string
	// Requested is when the claim was made, Joined when its node last joined, Lost when the node
	// was lost, and Released when the claim was given back or given up. Each is zero before that.
	Requested, Joined, Lost, Released time.Time
	// Left says that the lost node had been drained. Failed says that the node counts as a failure
	// of its kind.
	Left, Failed bool
	// Why is the reason for the request or, once the claim is released, for the release.
	Why string
}

// Backoff is how long no node of a kind is requested after failures.
type Backoff struct {
	Failures int
	Until    time.Time
	Why      string
}

// Pool has the claims, which are the nodes that were requested from providers. Only one goroutine
// uses it.
type Pool struct {
	// Asked counts all claims that were ever made.
	Asked    int
	Claims   map[string]Claim
	Backoffs map[string]Backoff
}

// NewPool returns a pool without claims.
func NewPool() *Pool { return &Pool{Claims: map[string]Claim{}, Backoffs: map[string]Backoff{}} }

// Event is something that happened to claims. The cluster has its own events for nodes that join or
// are lost.
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
	// Released gives back a claim. The coordinator asks the provider to delete the node until Gone
	// follows.
	Released struct {
		Tag  string
		Code Code
		Why  string
	}
	// Failed says that the node of a claim is not what its kind promises.
	Failed struct{ Tag, Why string }
	// Gone says that the provider refused a claim or does not have its node. If the claim was not
	// released before, Gone only releases it, because the provider may be wrong: the claim ends
	// with the next Gone.
	Gone struct{ Tag, Why string }
)

func (Requested) event() {}
func (Released) event()  {}
func (Failed) event()    {}
func (Gone) event()      {}

// Apply applies the next event. An event about a claim that does not exist changes nothing. epoch
// is the epoch of the log, and makes the tags of different logs differ.
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

// Present reports whether the claim's node is present.
func (c Claim) Present() bool { return !c.Joined.IsZero() && c.Lost.IsZero() }

// Refuses says why a node must not join: its claim was given up, or another node has the claim. It
// is empty if the node may join. So a node that its provider made late, or had lost track of,
// cannot join for a claim that no longer exists.
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

// hasAsked reports whether a tag is from the log with this epoch.
func (p *Pool) hasAsked(epoch, tag string) bool {
	i := strings.LastIndexByte(tag, '-')
	seq, err := strconv.Atoi(tag[i+1:])
	if err != nil || seq < 1 || seq > p.Asked {
		return false
	}
	kind, found := strings.CutSuffix(tag, tagOf("", epoch, seq))
	return found && kind != ""
}

// Joined notes that a node has joined. The pool must not refuse it.
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

// KindOf is the kind of a node with these labels, or empty. A node with a claim has the claim's
// kind. The kind of a node that no provider has made is in its label.
func (p *Pool) KindOf(labels map[string]string) string {
	if c, ours := p.Claims[labels[TagLabel]]; ours {
		return c.Kind
	}
	if kind := labels[KindLabel]; len(kind) <= MaxKind {
		return kind
	}
	return ""
}

// Sorted returns the claims, oldest first.
func (p *Pool) Sorted() []Claim {
	return slices.SortedFunc(maps.Values(p.Claims), func(a, b Claim) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Bounds on how long no node of a kind is requested after a failure.
const (
	minBackoff = 30 * time.Second
	maxBackoff = 15 * time.Minute
)

// lasts reports whether no node of the kind is requested yet. No backoff is longer than maxBackoff.
// If one seems to be longer, the clock was set back meanwhile, and the backoff no longer counts.
func (b Backoff) lasts(at time.Time) bool {
	return at.Before(b.Until) && b.Until.Sub(at) <= maxBackoff
}

// failed stops requests for nodes of a kind for a while. Claims that were made together count as
// one failure.
func (p *Pool) failed(at time.Time, kind, why string) {
	b := p.Backoffs[kind]
	switch {
	case b.lasts(at):
		return
	case at.Sub(b.Until) > maxBackoff: // the kind has worked for long
		b.Failures = 0
	}
	wait := min(minBackoff<<min(b.Failures, 10), maxBackoff)
	p.Backoffs[kind] = Backoff{Failures: b.Failures + 1, Until: at.Add(wait), Why: why}
}

// epochLen is how many characters of an epoch a tag has. They hold 30 bits.
const epochLen = 6

// tagOf returns the tag of a claim. The tag is a DNS label (RFC 1123) if the kind's name is a DNS
// label of at most MaxKind bytes.
func tagOf(kind, epoch string, seq int) string {
	return kind + "-" + strings.ToLower(epoch[:min(len(epoch), epochLen)]) + "-" + strconv.Itoa(seq)
}

// MaxKind bounds the name of a kind.
const MaxKind = 40
