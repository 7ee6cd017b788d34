package pairtests

import (
	"math"
	"slices"
)

// Judge returns a verdict on each node, as far as the results so far prove one. paths are the
// failed pairs whose nodes both work with others, well or slowly: then the path between the two is
// at fault.
func (c Contest) Judge() (verdicts []Verdict, paths []Result) {
	v := c.view()
	works := func(node int) bool { return v.verdicts[node].State == Good || v.verdicts[node].State == Slow }
	for _, r := range c.Done {
		if r.Err != "" && !r.Alone() && works(r.A) && works(r.B) {
			paths = append(paths, r)
		}
	}
	return v.verdicts, paths
}

// view is the results, by node.
type view struct {
	verdicts []Verdict
	pairs    [][]Result
	// tests counts the tests of pairs.
	tests int
}

func (v view) met(a, b int) bool {
	return slices.ContainsFunc(v.pairs[a], func(r Result) bool { return r.Test == pair(a, b) })
}

func (c Contest) view() view {
	v := view{verdicts: make([]Verdict, c.Nodes), pairs: make([][]Result, c.Nodes)}
	slow := c.thresholds()
	for n := range v.verdicts {
		v.verdicts[n].State = Untested
	}
	if c.Nodes == 1 {
		v.verdicts[0].State = Good
	}
	for _, r := range c.Done {
		if !r.Alone() {
			v.pairs[r.A], v.pairs[r.B] = append(v.pairs[r.A], r), append(v.pairs[r.B], r)
			v.tests++
		}
	}
	for _, r := range c.Done { // a node that failed alone is bad, even if it worked in pairs
		if state := slow.of(r); r.Alone() && state != Good && v.verdicts[r.A].State != Bad {
			v.verdicts[r.A] = Verdict{state, r, true}
		}
	}
	for _, r := range c.Done {
		if !r.Alone() && slow.of(r) == Good {
			v.verdicts[r.A].better(r)
			v.verdicts[r.B].better(r)
		}
	}
	good := 0
	for _, verdict := range v.verdicts {
		if verdict.State == Good {
			good++
		}
	}
	for n := range v.verdicts {
		if v.verdicts[n].State == Untested && len(v.pairs[n]) > 0 {
			v.accuse(n, good, slow)
		}
	}
	return v
}

// accuse calls a node bad if it has failed with a good node. A single failure is not enough while
// there is another good node to try, since the path between the two nodes may be at fault. A node
// that has worked with a good node is slow at worst.
func (v view) accuse(n, good int, slow thresholds) {
	verdict := Verdict{State: Suspect, Evidence: v.pairs[n][0], Tested: true}
	met := 0
	for _, r := range v.pairs[n] {
		if partner := r.A + r.B - n; v.verdicts[partner].State != Good {
			continue
		}
		if met++; verdict.State == Suspect || verdict.State == Bad && slow.of(r) == Slow {
			verdict.State, verdict.Evidence = slow.of(r), r
		}
	}
	if len(v.pairs[n]) == 1 && met < good {
		verdict.State = Suspect
	}
	v.verdicts[n] = verdict
}

// better makes r the evidence that a node is good, if r is the fastest result so far. A node that
// has failed or was slow alone is not good.
func (v *Verdict) better(r Result) {
	if v.State == Untested || v.State == Good && r.Bandwidth > v.Evidence.Bandwidth {
		*v = Verdict{Good, r, true}
	}
}

// thresholds are the bandwidths, in GB/s, below which a result is slow: inside a node, and between
// two nodes.
type thresholds struct{ alone, pair float64 }

func (c Contest) thresholds() thresholds {
	return thresholds{c.Slow * c.Usual(true), c.Slow * c.Usual(false)}
}

// Usual is the upper quartile of the bandwidths so far, inside nodes or between two, in GB/s; 0
// when none was measured.
func (c Contest) Usual(alone bool) float64 {
	var bandwidths []float64
	for _, r := range c.Done {
		if r.Err == "" && r.Bandwidth > 0 && r.Alone() == alone {
			bandwidths = append(bandwidths, r.Bandwidth)
		}
	}
	if len(bandwidths) == 0 {
		return 0
	}
	slices.Sort(bandwidths)
	return bandwidths[int(math.Ceil(0.75*float64(len(bandwidths))))-1]
}

// of returns the state of a result's nodes, judged by that result alone.
func (t thresholds) of(r Result) State {
	least := t.pair
	if r.Alone() {
		least = t.alone
	}
	switch {
	case r.Err != "":
		return Bad
	case r.Bandwidth > 0 && r.Bandwidth < least:
		return Slow
	}
	return Good
}
