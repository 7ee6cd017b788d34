package top

import (
	"fmt"
	"slices"
	"strings"
)

// place is the subject of a screen: all jobs or all nodes, a job, a node, or a rank.
type place struct {
	job, node string
	// rank is a rank of the job, or noRank.
	rank int
	// other is true to show the other kind of rows: nodes instead of jobs, ranks instead of nodes.
	other bool
	// attempts is true to show the attempts of the job. attempt is the number of one attempt,
	// counted from 1, or 0 for all.
	attempts bool
	attempt  int
}

// noRank is the rank of a place with several ranks.
const noRank = -1

// everything is the place that has all jobs.
var everything = place{rank: noRank}

// kind is the kind of a screen's rows.
type kind int

const (
	jobRows kind = iota
	nodeRows
	rankRows
	attemptRows
	facts
)

// rows returns the kind of rows of a place. A job on one node shows its ranks.
func (p *Picture) rows(at place) kind {
	switch {
	case at.rank >= 0:
		return facts
	case at.attempts:
		return attemptRows
	case at.node != "":
		return rankRows
	case at.job == "" && at.other:
		return nodeRows
	case at.job == "":
		return jobRows
	}
	if j := p.Job(at.job); j != nil && len(j.Nodes) > 1 && !at.other {
		return nodeRows
	}
	return rankRows
}

// ranks returns the ranks of a place, the worst first.
func (p *Picture) ranks(at place) []*Rank {
	j := p.Job(at.job)
	switch {
	case at.rank >= 0:
		if r := p.rank(at.job, at.rank); r != nil {
			return []*Rank{r}
		}
	case j != nil && at.node != "":
		for _, n := range j.Nodes {
			if n.Name == at.node {
				return n.Ranks
			}
		}
	case j != nil:
		return j.Ranks
	case at.node != "" && p.Node(at.node) != nil:
		return p.Node(at.node).Ranks
	}
	return nil
}

func (p *Picture) rank(job string, rank int) *Rank {
	if j := p.Job(job); j != nil {
		if i := slices.IndexFunc(j.Ranks, func(r *Rank) bool { return r.Rank.Rank == rank }); i >= 0 {
			return j.Ranks[i]
		}
	}
	return nil
}

// nodesOf returns the nodes of a job, or all nodes.
func (p *Picture) nodesOf(at place) []*Node {
	if j := p.Job(at.job); j != nil {
		return j.Nodes
	}
	return p.Nodes
}

// list is the table of a place. Its rows are made when they are visible.
type list struct {
	name    string
	columns []column
	n       int
	at      func(i int) place
	row     func(i int) row
	// words returns the text of row i that a filter searches.
	words func(i int) string
	// ranks are the ranks of the rows, if the rows are ranks.
	ranks []*Rank
}

// list makes the table of a place, with the rows that contain a text.
func (p *Picture) list(at place, find string) list {
	var l list
	switch p.rows(at) {
	case jobRows:
		l = p.jobList()
	case nodeRows:
		l = p.nodeList(at)
	case rankRows:
		l = p.rankList(at)
	case attemptRows:
		l = p.attemptList(at)
	case facts:
		l = list{name: "facts"}
	}
	if find != "" {
		l = l.only(find)
	}
	return l
}

// only keeps the rows that have a text.
func (l list) only(find string) list {
	find = strings.ToLower(find)
	var kept []int
	for i := range l.n {
		if strings.Contains(strings.ToLower(clean(l.words(i))), find) {
			kept = append(kept, i)
		}
	}
	all, ranks := l, l.ranks
	l.ranks = nil
	for _, i := range kept {
		if ranks != nil {
			l.ranks = append(l.ranks, ranks[i])
		}
	}
	l.name = fmt.Sprintf("%s with %q", l.name, find)
	l.n, l.at, l.row = len(kept), func(i int) place { return all.at(kept[i]) }, func(i int) row { return all.row(kept[i]) }
	return l
}

// find returns the index of a place, or the nearest index to the one before.
func (l list) find(at place, before int) int {
	for i := range l.n {
		if l.at(i) == at {
			return i
		}
	}
	return max(0, min(before, l.n-1))
}
