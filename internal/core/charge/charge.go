// Package charge divides the time of nodes among the jobs that hold them.
//
// A job is charged for its share of a node's GPUs. On a node without GPUs, a job that has asked for
// a number of CPUs is charged for its share of the CPUs. The other jobs are charged equal parts of
// the rest. Time that no job is charged for is idle. So charged time and idle time add up to the
// time of the node, to the millisecond.
//
// Time is counted in whole milliseconds. The nanoseconds of a [time.Duration] would overflow after
// eleven days of 10,000 nodes.
package charge

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Time is time of nodes and of their GPUs, in milliseconds.
type Time struct{ Nodes, GPUs int64 }

// Add adds another time.
func (t *Time) Add(o Time) { t.Nodes, t.GPUs = t.Nodes+o.Nodes, t.GPUs+o.GPUs }

func (t *Time) take(o Time) { t.Nodes, t.GPUs = t.Nodes-o.Nodes, t.GPUs-o.GPUs }

// Node is a node that the same jobs have held since the time Since. The node's time before that is
// already divided.
type Node struct {
	GPUs, CPUs int
	Since      time.Time
}

// Share is the part of a node that a job holds. CPUs are 0 if the job has not asked for a number of
// CPUs.
type Share struct{ GPUs, CPUs int }

// Divide divides the time of a node from Since until a time. It returns the time that each share is
// charged for, and the idle time. Nothing is charged if the clock was set back meanwhile.
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

// MaxKinds bounds the kinds of nodes, besides the empty kind. maxPairs bounds the pairs of a user
// and a kind. Further users are counted as [report.OtherUsers], which may add one pair for each
// kind.
const (
	MaxKinds = 256
	maxPairs = 4096
)

// Pair is a user and a kind of node, for which a [Ledger] counts charges together.
type Pair struct{ User, Kind string }

// Ledger has the time of nodes that was divided already, except the charges of jobs that the
// cluster still knows.
type Ledger struct {
	// Since is when the first node joined; zero before that.
	Since time.Time
	// Idle is idle time by kind, for all kinds that there ever were.
	Idle map[string]Time
	// Users has the charges of forgotten jobs.
	Users map[Pair]Time
}

// NewLedger returns an empty ledger.
func NewLedger() Ledger { return Ledger{Idle: map[string]Time{}, Users: map[Pair]Time{}} }

// Begin notes that a node of a kind has joined. It returns the kind under which the node's time
// counts, which is the empty kind if there are too many kinds.
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

// Rest adds idle time of a kind for which Begin was called.
func (l *Ledger) Rest(kind string, idle Time) {
	idle.Add(l.Idle[kind])
	l.Idle[kind] = idle
}

// Fold keeps the charges of a job by kind when the job is forgotten. If there is room for only some
// of the kinds, these are the first by name. The charges for the other kinds count for
// [report.OtherUsers].
func (l *Ledger) Fold(user string, charged map[string]Time) {
	for _, kind := range slices.Sorted(maps.Keys(charged)) {
		p, t := Pair{user, kind}, charged[kind]
		if _, known := l.Users[p]; !known && len(l.Users) >= maxPairs {
			p.User = report.OtherUsers
		}
		t.Add(l.Users[p])
		l.Users[p] = t
	}
}

// Clone returns a copy.
func (l *Ledger) Clone() Ledger {
	return Ledger{l.Since, maps.Clone(l.Idle), maps.Clone(l.Users)}
}
