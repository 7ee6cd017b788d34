// Package health finds what is wrong with a node before a job runs there.
//
// Each possible problem is a declared value, a [Warnable], with a stable code. [Collect] reads the
// facts of this machine. [Check] judges them, and [Skew] compares the facts of all nodes; both only
// compute, and read nothing. Problems of GPUs or RDMA count only where these exist, and unreadable
// facts do not count against the node.
package health

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity says what a finding means for a job.
type Severity string

const (
	// Error: a job that uses the faulty part fails or computes wrong results.
	Error Severity = "error"
	// Warning: a job runs, but worse than it could, or not for long.
	Warning Severity = "warning"
)

// Warnable is one possible problem.
type Warnable struct {
	// Code names the problem for programs, in lower case words with '-' between them. It never
	// changes.
	Code string
	// Title names the problem for people.
	Title    string
	Severity Severity
	// When says what golaunch measures against which threshold.
	When string
	// Remedy is what a person can do.
	Remedy string
}

// Find returns the Warnable with a code, which must be in the [Table].
func Find(code string) Warnable {
	return Table[slices.IndexFunc(Table, func(w Warnable) bool { return w.Code == code })]
}

// Finding is a problem on a node.
type Finding struct {
	Warnable Warnable
	// Text says what was found, in one line.
	Text string
	// Node is empty for this machine, and for problems between nodes.
	Node string
}

// String ends with the code, so that a user can search for it: "n17: /dev/shm has 64 MiB; start the
// container with ... [shm-small]".
func (f Finding) String() string {
	return fmt.Sprintf("%s; %s [%s]", f.Where(), f.Warnable.Remedy, f.Warnable.Code)
}

// Where returns the finding's text, after the name of its node if Node is set.
func (f Finding) Where() string {
	if f.Node == "" {
		return f.Text
	}
	return f.Node + ": " + f.Text
}

// find makes a finding of this problem.
func (w Warnable) find(format string, args ...any) Finding {
	return Finding{Warnable: w, Text: fmt.Sprintf(format, args...)}
}

// Worst sorts findings by severity, errors first, and is stable.
func Worst(findings []Finding) {
	rank := map[Severity]int{Error: 0, Warning: 1}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(rank[a.Warnable.Severity], rank[b.Warnable.Severity])
	})
}

// Errors are the findings that are errors.
func Errors(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Warnable.Severity != Error })
}
