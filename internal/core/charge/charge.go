// Package charge divides the time of nodes among the jobs that hold them.
//
// A job is charged for its share of a node's GPUs. On a node without GPUs, it is charged for its share
// of the CPUs if it has asked for a number of them. The rest is charged in equal parts to the jobs
// that have not. What no job is charged for is idle. So what is charged and what is idle add up to
// the time of the node, to the millisecond.
//
// Time is counted in whole milliseconds. The nanoseconds of a [time.Duration] would overflow after
// eleven days of 10,000 nodes.
package charge

import (
	"maps"
	"math/bits"
	"time"
)

// Time is time of nodes and of their GPUs, in milliseconds.
type Time struct{ Nodes, GPUs int64 }

// Add adds another time.
func (t *Time) Add(o Time) { t.Nodes, t.GPUs = t.Nodes+o.Nodes, t.GPUs+o.GPUs }

func (t *Time) take(o Time) { t.Nodes, t.GPUs = t.Nodes-o.Nodes, t.GPUs-o.GPUs }

// Node is a node that has been held by the same jobs since a time; its time before that is divided.
type Node struct {
	GPUs, CPUs int
	Since      time.Time
}

// Share is what a job holds of a node. CPUs are 0 if it has asked for no number of them.
type Share struct{ GPUs, CPUs int }

// Divide returns what each share is charged for until a time, and what is idle. Nothing is charged if
// the clock was set back meanwhile.
func (n Node) Divide(until time.Time, shares []Share) (each []Time, idle Time) {
	each = make([]Time, len(shares))
	passed := until.UnixMilli() - n.Since.UnixMilli()
	if n.Since.IsZero() || passed <= 0 {
		return each, idle
	}
	idle = Time{passed, passed * int64(n.GPUs)}
	if n.GPUs > 0 {
		left := n.GPUs
		for i, s := range shares {
			gpus := min(s.GPUs, left)
			left -= gpus
			each[i] = Time{part(passed, gpus, n.GPUs), passed * int64(gpus)}
			idle.take(each[i])
		}
		return each, idle
	}
	left, rest := n.CPUs, 0
	for i, s := range shares {
		if s.CPUs <= 0 || n.CPUs <= 0 {
			rest++
			continue
		}
		cpus := min(s.CPUs, left)
		left -= cpus
		each[i].Nodes = part(passed, cpus, n.CPUs)
		idle.take(each[i])
	}
	for i, s := range shares {
		if s.CPUs <= 0 || n.CPUs <= 0 {
			each[i].Nodes = idle.Nodes / int64(rest)
			idle.take(each[i])
			rest--
		}
	}
	return each, idle
}

// part returns a of b equal parts of a time, for 0 <= a <= b and b > 0.
func part(whole int64, a, b int) int64 {
	high, low := bits.Mul64(uint64(whole), uint64(a))
	share, _ := bits.Div64(high, low, uint64(b))
	return int64(share)
}

// MaxKinds bounds the kinds of nodes, besides the empty one, and maxPairs the users by kind. Others are
// counted as [Others], which may be one more of each kind.
const (
	MaxKinds = 256
	maxPairs = 4096
)

// Others is the user that stands for those who are too many to be kept by name. No user has that name.
const Others = "*"

// Pair is a user's part of a kind of nodes.
type Pair struct{ User, Kind string }

// Ledger has the time of nodes that is divided, except that of jobs that have their own.
type Ledger struct {
	// Since is when the first node came; zero before that.
	Since time.Time
	// Idle is idle time by kind, with all kinds that there ever were.
	Idle map[string]Time
	// Users is what jobs were charged for that are forgotten.
	Users map[Pair]Time
}

// NewLedger returns an empty ledger.
func NewLedger() Ledger { return Ledger{Idle: map[string]Time{}, Users: map[Pair]Time{}} }

// Begin notes that a node of a kind has come, and returns the kind that it counts as: none, the
// empty one, if there are too many.
func (l *Ledger) Begin(at time.Time, kind string) string {
	if l.Since.IsZero() {
		l.Since = at
	}
	if _, known := l.Idle[kind]; !known && len(l.Idle) >= MaxKinds {
		kind = ""
	}
	l.Rest(kind, Time{})
	return kind
}

// Rest adds idle time of a kind that has begun.
func (l *Ledger) Rest(kind string, idle Time) {
	idle.Add(l.Idle[kind])
	l.Idle[kind] = idle
}

// Fold keeps what a job was charged for, by kind, when that is forgotten.
func (l *Ledger) Fold(user string, charged map[string]Time) {
	for kind, t := range charged {
		p := Pair{user, kind}
		if _, known := l.Users[p]; !known && len(l.Users) >= maxPairs {
			p.User = Others
		}
		t.Add(l.Users[p])
		l.Users[p] = t
	}
}

// Clone returns a copy.
func (l *Ledger) Clone() Ledger {
	return Ledger{l.Since, maps.Clone(l.Idle), maps.Clone(l.Users)}
}
