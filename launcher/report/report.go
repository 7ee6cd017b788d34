// Package report declares what golaunch reports about jobs: how and why processes, attempts and
// jobs ended, the state of jobs, and what they use.
//
// Every part of golaunch uses these types, and their JSON is the contract in docs/json.md.
package report

// Ending is the reason for a job's end in one word: it says whether to submit the job again.
type Ending string

const (
	// EndSuccess means that all ranks of the last attempt exited 0.
	EndSuccess Ending = "success"
	// EndProgram means that the job would fail again: do not submit it again as it is.
	EndProgram Ending = "program"
	// EndBudget means that the job failed more often than its budget of restarts allows. It is
	// unknown whether one more restart would have helped.
	EndBudget Ending = "budget"
	// EndInfrastructure means that a node, its hardware, the network or golaunch failed: submit it
	// again.
	EndInfrastructure Ending = "infrastructure"
	// EndPreempted means that the job had to give up a node, to another job for example, or that its
	// time limit was reached: submit it again.
	EndPreempted Ending = "preempted"
	// EndTimeout means that the job did not get its nodes in time.
	EndTimeout Ending = "timeout"
	// EndCancelled means that a person or a program stopped the job.
	EndCancelled Ending = "cancelled"
)

// Unsuccessful returns all endings but EndSuccess.
func Unsuccessful() []Ending {
	return []Ending{EndProgram, EndBudget, EndInfrastructure, EndPreempted, EndTimeout, EndCancelled}
}

// Result is how a job ended.
type Result struct {
	// Code is 0 for success, the exit code of the rank that failed first, or a code of golaunch's
	// own: 124 for a timeout while it waited for nodes, 125 for a failure of golaunch, an
	// infeasible request or a lost node. A code that the job has chosen for this Ending replaces
	// it.
	Code   int    `json:"code"`
	Ending Ending `json:"ending"`
	// Reason says in one line how and why the job ended.
	Reason string `json:"reason"`
	// Cause is the failure that ended the last attempt; nil on success and for a job that no
	// failure ended.
	Cause *Failure `json:"cause,omitempty"`
	// Attempts counts the attempts that were started: for ranks that restart on their own, the sum
	// over all ranks. Restarts counts the attempts that followed a failure, whether or not they
	// were charged to the budget.
	Attempts int `json:"attempts"`
	Restarts int `json:"restarts"`
	// Goodput says what the time of the ranks was spent on; nil if the job never had ranks.
	Goodput *Goodput `json:"goodput,omitempty"`
	// Start says what the time of the newest start was spent on; nil if the ranks restart on their
	// own.
	Start *Start `json:"start,omitempty"`
	// Saves are the job's checkpoints; nil if golaunch saw none.
	Saves *Saves `json:"saves,omitempty"`
}

// Span is a range of ranks, both ends included.
type Span struct {
	From int `json:"From"`
	To   int `json:"To"`
}
