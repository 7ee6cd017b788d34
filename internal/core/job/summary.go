package job

import (
	"github.com/golaunch/golaunch/placement"
)

// Phase is the phase of a job, or of a unit of a job.
type Phase string

// The phases, in the order in which an attempt goes through them.
const (
	Gathering Phase = "gathering"
	Preparing Phase = "preparing"
	Running   Phase = "running"
	Stopping  Phase = "stopping"
	Backoff   Phase = "backoff"
	Finished  Phase = "finished"
)

// Summary is the state of a job for a status view.
type Summary struct {
	Phase Phase
	// Attempt is the newest attempt of any unit.
	Attempt               int
	Restarts, MaxRestarts int
	// Waits says in words what the job waits for or, once it is finished, how it ended.
	Waits string
	// Nodes are the present nodes: first by node rank, then the spares by name.
	Nodes []NodeSummary
}

// NodeSummary is one node of a [Summary].
type NodeSummary struct {
	Node placement.Node
	// NodeRank is -1 for a spare.
	NodeRank int
	// Ranks are the bundles that the job has on the node; Live says whether processes of the job
	// may be there.
	Ranks []placement.Bundle
	Live  bool
}
