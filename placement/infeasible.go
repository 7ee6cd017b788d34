package placement

import (
	"fmt"
	"slices"
	"strings"
)

// InfeasibleError says why the nodes do not suffice for a job.
type InfeasibleError struct {
	// Why says in words what is missing: "2 of 3 nodes are there", "found 1 of 2 nodes with room
	// for 8 ranks".
	Why string
	// Nodes has all nodes that could not take their share, sorted by name.
	Nodes []Refusal
	// Missing is the number of further nodes that the job needs before it can start; 0 if there are
	// enough nodes, but they lack room.
	Missing int
	// Ever is true if waiting can help: nodes are missing, or there would be room if other jobs
	// gave up their GPUs. Ray applies the same test to the nodes' total resources. Ray calls the
	// job unavailable if waiting can help, and otherwise infeasible.
	Ever bool
}

// Refusal says why one node could not take its share: "7 of 8 GPUs free, gpu5 held by pid 4411".
type Refusal struct{ Node, Why string }

// shownNodes and shownGPUs bound the text of an error.
const (
	shownNodes = 3
	shownGPUs  = 3
)

// Error returns one line with the reasons of the first few nodes.
func (e *InfeasibleError) Error() string {
	var b strings.Builder
	b.WriteString("cannot place the job")
	if e.Ever {
		b.WriteString(" yet")
	}
	b.WriteString(": " + e.Why)
	for i, n := range e.Nodes {
		if i == shownNodes {
			fmt.Fprintf(&b, "; and %d more", len(e.Nodes)-i)
			break
		}
		fmt.Fprintf(&b, "; %s: %s", n.Node, n.Why)
	}
	if !e.Ever {
		b.WriteString("; ask for less, or add nodes")
	}
	return b.String()
}

func (r Request) infeasible(candidates []*candidate) *InfeasibleError {
	there := 0
	for _, c := range candidates {
		if c.listed {
			there++
		}
	}
	e := &InfeasibleError{Missing: max(0, r.leastNodes()-there)}
	e.Ever = e.Missing > 0 || r.fit(candidates, (*candidate).ever) >= r.MinNodes
	want, why := r.shortage(candidates)
	e.Why = why
	if e.Missing > 0 {
		e.Why = fmt.Sprintf("%d of %s are there", there, count(r.leastNodes(), "node"))
	}
	for _, c := range candidates {
		if c.free < want {
			e.Nodes = append(e.Nodes, Refusal{Node: c.node.Name, Why: r.refusal(c, want)})
		}
	}
	slices.SortFunc(e.Nodes, func(a, b Refusal) int { return natural(a.Node, b.Node) })
	return e
}

// shortage says why the candidates do not suffice for MinNodes. A node with room for fewer than
// want shares is one of the reasons.
func (r Request) shortage(candidates []*candidate) (want int, why string) {
	switch {
	case r.wholeGroups():
		return r.shortGroups(candidates)
	case r.Strategy == StrictSpread:
		return 1, fmt.Sprintf("found %d of %s with room for 1 rank", roomy(candidates, 1), count(r.leastNodes(), "node"))
	}
	room := 0
	for _, c := range candidates {
		room += c.free
	}
	want = r.bundles(r.MinNodes)
	return want, fmt.Sprintf("found room for %d of %s", room, count(want, "rank"))
}

// shortGroups returns the largest group size for which there are too few nodes.
func (r Request) shortGroups(candidates []*candidate) (want int, why string) {
	groups := r.entries(r.MinNodes)
	l := newLedger(groups, candidates, (*candidate).now)
	for _, size := range groups {
		if !l.add(size) {
			want = l.shortSize(size)
			break
		}
	}
	need := 0
	for _, size := range groups {
		if size >= want {
			need++
		}
	}
	what := "room for " + count(want, "rank")
	if r.allGPUs() {
		what = "all GPUs free"
		if !r.GPU {
			what = "room for its ranks"
		}
	}
	return want, fmt.Sprintf("found %d of %s with %s", roomy(candidates, want), count(need, "node"), what)
}

// roomy counts the candidates with room for the given number of shares.
func roomy(candidates []*candidate, want int) int {
	n := 0
	for _, c := range candidates {
		if c.free >= want {
			n++
		}
	}
	return n
}
