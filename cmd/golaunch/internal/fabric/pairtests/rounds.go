// Package pairtests decides which pairs of nodes test their communication, round by round, until
// each node is proven good or named bad.
//
// It makes no tests itself, but computes with their results. At first each node is tested alone.
// Nodes that pass are tested in pairs. If a pair fails, each node of the pair is tested with a
// partner that is proven good. A round takes as long as one test, because no node is in two tests
// of a round.
package pairtests

import (
	"math/bits"
	"slices"
	"time"
)

// Test names two nodes by number. A node that is tested alone is both A and B.
type Test struct{ A, B int }

// Alone says that the test is inside one node.
func (t Test) Alone() bool { return t.A == t.B }

// Result is the outcome of a test. If one of two nodes falls silent, the test has no result;
// instead the silent node gets a failed test alone.
type Result struct {
	Test
	Latency time.Duration
	// Bandwidth is in GB/s; 0 when it was not measured.
	Bandwidth float64
	// Err says why the test failed; empty when it passed.
	Err string
}

// State is what is known about a node.
type State string

const (
	// Good says that the node has passed alone and, if there is another node, with another node.
	Good State = "good"
	// Slow says that the node has passed alone, or with a good node, but with far less bandwidth than
	// other nodes.
	Slow State = "slow"
	// Bad says that the node has failed alone or with a good node.
	Bad State = "bad"
	// Suspect says that the node has failed, and no good node was there to decide which node was at
	// fault.
	Suspect State = "suspect"
	// Untested says that the node has passed alone, and has had no partner.
	Untested State = "untested"
)

// Verdict is a node's state and the result that proves it: the best result of a good node, the
// worst of any other. Tested is false without such a result.
type Verdict struct {
	State    State
	Evidence Result
	Tested   bool
}

// Contest has the results of a number of nodes so far.
type Contest struct {
	Nodes int
	// Slow is the part of the usual bandwidth below which a node is slow; with 0, no node counts as
	// slow. The usual bandwidth is the upper quartile of the tests. The median would be wrong as soon
	// as every fourth node is slow, since a slow node makes both nodes of its pair look slow.
	Slow float64
	Done []Result
}

// Next returns the tests of a round, counted from 0; none when nothing is left to learn.
func (c Contest) Next(round int) []Test {
	if round == 0 {
		return c.alone()
	}
	if round > lastRound(c.Nodes) {
		return nil
	}
	v := c.view()
	var good, open []int
	for n := range c.Nodes {
		switch v.verdicts[n].State {
		case Good:
			good = append(good, n)
		case Suspect, Untested:
			open = append(open, n)
		}
	}
	switch {
	case len(good) == 0:
		return v.among(open, round-1)
	case len(open) == 0 && len(good) == 3 && v.tests < 3 && c.Slow > 0:
		return v.among(good, round-1) // the slow node of three is in two pairs, so all three pairs are needed to find it
	}
	return v.against(good, open, round)
}

// lastRound bounds the rounds: each round settles at least as many nodes as are good. More rounds
// are needed only if most nodes are bad.
func lastRound(nodes int) int { return 2*bits.Len(uint(nodes)) + 2 }

func (c Contest) alone() []Test {
	tests := make([]Test, c.Nodes)
	for n := range tests {
		tests[n] = Test{n, n}
	}
	return tests
}

// among pairs nodes as in a round-robin tournament: one node stays, and the others move by one
// place each round.
func (v view) among(nodes []int, turn int) (tests []Test) {
	ring := slices.Clone(nodes)
	if len(ring)%2 == 1 {
		ring = append(ring, -1)
	}
	for range len(ring) { // nodes that fell silent change the ring, so a turn may have no new pair
		for i := range len(ring) / 2 {
			a, b := nodeAt(ring, i, turn), nodeAt(ring, len(ring)-1-i, turn)
			if a >= 0 && b >= 0 && !v.met(a, b) {
				tests = append(tests, pair(a, b))
			}
		}
		if len(tests) > 0 {
			return tests
		}
		turn++
	}
	return nil
}

func nodeAt(ring []int, place, turn int) int {
	if place == 0 {
		return ring[0]
	}
	return ring[1+(place-1+turn)%(len(ring)-1)]
}

func pair(a, b int) Test { return Test{min(a, b), max(a, b)} }

// against gives each open node a good partner that it has not met. A node without a partner waits:
// nodes that pass in this round are partners in the next.
func (v view) against(good, open []int, turn int) (tests []Test) {
	turn %= len(good)
	free := slices.Concat(good[turn:], good[:turn])
	for _, n := range open {
		i := slices.IndexFunc(free, func(g int) bool { return !v.met(n, g) })
		if i >= 0 {
			tests = append(tests, pair(n, free[i]))
			free[i] = free[0]
			free = free[1:]
		}
	}
	return tests
}
