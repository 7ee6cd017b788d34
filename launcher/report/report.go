// Package report declares what golaunch says about a job: how a process ended, why an attempt failed
// and what that means, how the job ended, and where it stands.
//
// Every part of golaunch uses these types, and their JSON is the contract in docs/json.md.
package report

// Ending is what a job ended for in one word: it tells whether to submit the job again.
type Ending string

const (
	// EndSuccess means that all ranks of the last attempt exited 0.
	EndSuccess Ending = "success"
	// EndProgram means that the job would fail again: do not submit it again as it is.
	EndProgram Ending = "program"
	// EndBudget means that the job failed more often than it may. A restart might have helped, or not.
	EndBudget Ending = "budget"
	// EndInfrastructure means that a node, its hardware, the network or golaunch failed: submit it again.
	EndInfrastructure Ending = "infrastructure"
	// EndPreempted means that another job took the nodes, or the time was over: submit it again.
	EndPreempted Ending = "preempted"
	// EndTimeout means that the job did not get its nodes in time.
	EndTimeout Ending = "timeout"
	// EndCancelled means that the job was told to stop.
	EndCancelled Ending = "cancelled"
)

// Unsuccessful returns all endings but EndSuccess.
func Unsuccessful() []Ending {
	return []Ending{EndProgram, EndBudget, EndInfrastructure, EndPreempted, EndTimeout, EndCancelled}
}
