package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// label names a job in a list of the jobs that hold a GPU.
func (e *entry) label() string {
	if e.Reserve {
		return "reservation " + e.Job.ID
	}
	return "job " + e.Job.ID
}

// name names a job to another job. It adds the user or priority if the two differ.
func (e *entry) name(to *entry) string {
	name := "job " + e.Job.ID
	if e.User != to.User && e.User != "" {
		name += " of " + e.User
	}
	if e.Priority != to.Priority {
		name += " (" + string(e.Priority) + ")"
	}
	return name
}

// needs is what a job waits for, in words that stay true while it waits.
func needs(e *entry) string {
	r := e.Job.Request
	if len(e.held) > 0 {
		return "nodes in the place of lost ones"
	}
	nodes := words.Count(r.MinNodes, "node")
	what, per := "rank", r.PerNode
	if r.GPU {
		what, per = "GPU", slices.Clone(per)
		for i, n := range per {
			per[i] = r.Takes(n)
		}
	}
	switch {
	case len(r.PerNode) == 1 && r.PerNode[0] == placement.AllGPUs && !r.GPU:
		return nodes + " with room for its ranks"
	case len(r.PerNode) == 1 && r.PerNode[0] == placement.AllGPUs:
		return nodes + " with all GPUs free"
	case r.Strategy == placement.Pack || r.Strategy == placement.Spread || r.Strategy == placement.StrictSpread:
		return words.Count(ranks(r, r.MinNodes), what)
	case len(r.PerNode) == 1 && r.MinNodes == 1:
		return nodes + " with " + words.Count(per[0], what)
	case len(r.PerNode) == 1:
		return fmt.Sprintf("%s with %s each", nodes, words.Count(per[0], what))
	}
	return fmt.Sprintf("%s with %s %ss", nodes, strings.Trim(strings.ReplaceAll(fmt.Sprint(per[:r.MinNodes]), " ", ","), "[]"), what)
}
