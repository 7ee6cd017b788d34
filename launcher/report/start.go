package report

import (
	"fmt"
	"strings"
)

// Start says what the time of an attempt's start was spent on. Each phase begins when the phase
// before it ends, and ends with the slowest node or rank.
type Start struct {
	Attempt int          `json:"attempt"`
	Phases  []StartPhase `json:"phases"`
	// Modules are the modules that took longest to import in a fork server, at most 5. They are
	// from the node where all imports together took longest. The time of each includes the modules
	// that it imports itself.
	Modules []Module `json:"modules"`
}

// StartPhase is a part of a start.
type StartPhase struct {
	Phase   Phase   `json:"phase"`
	Seconds float64 `json:"seconds"`
	// Node and Rank are the slowest node and rank, which ended the phase, if golaunch knows them.
	Node string `json:"node,omitempty"`
	Rank *int   `json:"rank,omitempty"`
}

// Module is a Python module.
type Module struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Phase names a part of a start.
type Phase string

// The phases, in their order. A start has only the phases that happened in it.
const (
	// PhaseBackoff is the wait after the failure of the previous attempt.
	PhaseBackoff Phase = "backoff"
	// PhaseNodes is the wait for nodes, from the job's submission, or from the end of the previous
	// attempt.
	PhaseNodes Phase = "nodes"
	// PhaseChecks is the time for checks of the nodes, the command and the network, and for finding
	// a free port.
	PhaseChecks Phase = "checks"
	// PhaseImports is the wait for fork servers that import modules.
	PhaseImports Phase = "imports"
	// PhaseProcesses is the start of all processes, by fork or exec.
	PhaseProcesses Phase = "processes"
	// PhaseStore is the time until all ranks have connected to the job's store, as
	// init_process_group does. In this phase the interpreter starts, and ranks that were not forked
	// import their modules.
	PhaseStore Phase = "store"
	// PhaseStep is the time until rank 0 reported its first step.
	PhaseStep Phase = "step"
)

// words has a description of each phase, for people.
var words = map[Phase]string{
	PhaseBackoff:   "backoff",
	PhaseNodes:     "waiting for nodes",
	PhaseChecks:    "checks and a free port",
	PhaseImports:   "imports by the fork server",
	PhaseProcesses: "fork or exec",
	PhaseStore:     "until all ranks had connected to the store",
	PhaseStep:      "until the first step",
}

// String returns the phase in a few words.
func (p Phase) String() string {
	if text, known := words[p]; known {
		return text
	}
	return string(p)
}

// Seconds returns the sum of the times of all phases.
func (s Start) Seconds() (sum float64) {
	for _, p := range s.Phases {
		sum += p.Seconds
	}
	return sum
}

// shortPhase is a share of the whole start. String names only phases that take at least this share.
const shortPhase = 0.05

// String returns the start in one line: "12.3 s: 3.4 s imports by the fork server, 8.6 s until the
// first step".
func (s Start) String() string {
	var parts []string
	for _, p := range s.Phases {
		if p.Seconds >= shortPhase*s.Seconds() {
			parts = append(parts, fmt.Sprintf("%.1f s %v", p.Seconds, p.Phase)+p.slowest())
		}
	}
	return fmt.Sprintf("%.1f s: %s", s.Seconds(), strings.Join(parts, ", "))
}

// slowest names the rank that was the last to end a phase, if golaunch knows it.
func (p StartPhase) slowest() string {
	if p.Rank == nil || p.Phase == PhaseStep {
		return ""
	}
	return fmt.Sprintf(" (last rank %d)", *p.Rank)
}

// notableStart is how long a start must take to be worth a line, in seconds.
const notableStart = 10

// Notable reports whether the start is worth a line: it took at least ten seconds.
func (s *Start) Notable() bool { return s != nil && s.Seconds() >= notableStart }
