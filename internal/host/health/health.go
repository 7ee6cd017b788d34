// Package health finds what is wrong with a node before a job runs there.
//
// Each thing that can be wrong is a declared value, a [Warnable], with a code that does not change. [Collect] reads the facts of
// this machine, [Check] judges them and [Skew] compares those of all nodes; both are arithmetic on values. What matters only to
// GPUs or RDMA is judged only where they are, and what cannot be read is not held against the node.
package health

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity says what a finding means for a job.
type Severity string

const (
	// Error is on a node on which a job that uses the thing fails, or computes wrong results.
	Error Severity = "error"
	// Warning is on a node on which a job runs, but worse than it could, or not for long.
	Warning Severity = "warning"
)

// Warnable is one thing that can be wrong.
type Warnable struct {
	// Code names it for programs, and never changes: lower case words with '-' between them.
	Code string
	// Title names it for people.
	Title string
	// Severity is the same for all findings of a code.
	Severity Severity
	// When says what is measured against which threshold.
	When string
	// Remedy is what a person can do.
	Remedy string
}

// Find is the Warnable with a code, which must be one of the [Table].
func Find(code string) Warnable {
	return Table[slices.IndexFunc(Table, func(w Warnable) bool { return w.Code == code })]
}

// Finding is that something is wrong on a node.
type Finding struct {
	Warnable Warnable
	// Text says what was found, in one line.
	Text string
	// Node is empty for the machine that was looked at, and for what is wrong between nodes.
	Node string
}

// String has the code at the end, for a search: "n17: /dev/shm has 64 MiB; start the container with ... [shm-small]".
func (f Finding) String() string {
	return fmt.Sprintf("%s; %s [%s]", f.Where(), f.Warnable.Remedy, f.Warnable.Code)
}

// Where is what was found, behind the name of the node if it has one.
func (f Finding) Where() string {
	if f.Node == "" {
		return f.Text
	}
	return f.Node + ": " + f.Text
}

// find states a finding of this kind.
func (w Warnable) find(format string, args ...any) Finding {
	return Finding{Warnable: w, Text: fmt.Sprintf(format, args...)}
}

// Worst sorts findings by severity, errors first, and leaves those alike in their order.
func Worst(findings []Finding) {
	rank := map[Severity]int{Error: 0, Warning: 1}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(rank[a.Warnable.Severity], rank[b.Warnable.Severity])
	})
}

// Errors are the findings of that severity.
func Errors(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Warnable.Severity != Error })
}
