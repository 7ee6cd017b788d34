package report

import (
	"net/netip"
	"time"
)

// Status is a cluster as it stands.
type Status struct {
	// Version is the coordinator's golaunch, and Since when it started.
	Version string
	Since   time.Time
	// Coordinators are the addresses, HOST:PORT, of a cluster with several, the leader first; empty
	// for one. Silent are those of them that do not answer the leader.
	Coordinators, Silent []string
	// Requested are the nodes that were asked of providers and have not come; there are at most 64
	// such requests. Blocked says which job no nodes can be asked for, and why; empty if there is
	// none.
	Requested []RequestedNodes
	Blocked   string
	// Nodes are sorted by name.
	Nodes []NodeStatus
	// Jobs are in the order of submission: all that are not over, and the last that are.
	Jobs []JobStatus
}

// RequestedNodes are nodes that were asked of a provider at a time and have not come.
type RequestedNodes struct {
	Kind  string    `json:"kind"`
	Nodes int       `json:"nodes"`
	Since time.Time `json:"since"`
	// State is what the provider says of the first of them, such as "Slurm job 4711, pending:
	// Priority"; empty while it has said nothing.
	State string `json:"state,omitempty"`
}

// Query limits a [Status].
type Query struct {
	// Job is the only job to describe, with its nodes; empty means all jobs.
	Job string
	// Jobs omits the nodes, and Open the jobs that are over. Brief omits the History, and Tail,
	// Traceback and Kernel of a Cause.
	Jobs, Open, Brief bool
}

// NodeStatus is one node of a cluster. Its JSON has only what golaunch status prints as it is
// (docs/json.md): that command adds the State and counts the GPUs.
type NodeStatus struct {
	Name string `json:"name"`
	// Addr is the address at which other nodes reach this one.
	Addr netip.Addr `json:"address"`
	GPUs []GPU      `json:"-"`
	// CPUs counts the logical CPUs that ranks may use, and Memory is in bytes; 0 where unknown.
	CPUs   int               `json:"cpus"`
	Memory int64             `json:"-"`
	Labels map[string]string `json:"labels"`
	// Silent is the time since the coordinator last heard the agent, if the agent is not connected
	// or has been silent for half of its lease; 0 otherwise.
	Silent time.Duration `json:"-"`
	// Drained says that the node gets no more ranks.
	Drained bool `json:"-"`
	// Holds are what each job and reservation has there, in the order of submission.
	Holds []Holding `json:"holds"`
	// Excluded are the jobs that use the node only if others will not do.
	Excluded []Exclusion `json:"excluded"`
}

// Holding is what a job or a reservation has of a node.
type Holding struct {
	Job string `json:"job"`
	// GPUs are indexes; a job without GPUs has none.
	GPUs []int `json:"gpus"`
}

// Exclusion says that a job uses a node only if others will not do, because of failures there.
type Exclusion struct {
	// Job is empty for all new jobs: the hardware of the node failed in one.
	Job   string    `json:"job,omitempty"`
	Why   string    `json:"why"`
	Until time.Time `json:"until"`
}

// NodeState says whether a node can be used.
type NodeState string

const (
	NodeReady NodeState = "ready"
	// NodeDrained means that the node gets no more ranks.
	NodeDrained NodeState = "drained"
	// NodeSilent means that the agent is not connected at the moment.
	NodeSilent NodeState = "silent"
)

// State returns whether the node can be used.
func (n NodeStatus) State() NodeState {
	switch {
	case n.Silent > 0:
		return NodeSilent
	case n.Drained:
		return NodeDrained
	}
	return NodeReady
}

// GPUsUsed returns how many GPUs jobs and reservations hold.
func (n NodeStatus) GPUsUsed() int {
	used := map[int]bool{}
	for _, h := range n.Holds {
		for _, gpu := range h.GPUs {
			used[gpu] = true
		}
	}
	return len(used)
}

// JobStatus is one job of a cluster, or a reservation.
type JobStatus struct {
	ID string `json:"id"`
	// Phase is "gathering" while the job waits for nodes, "preparing", "running", "stopping",
	// "backoff" or "finished".
	Phase string `json:"phase"`
	// Waits says what the job waits for; once it is over, how it ended.
	Waits string `json:"waits,omitempty"`
	// WaitsFor are the jobs that it waits for in the queue: the one before it, and those that are being
	// preempted for it, at most 17.
	WaitsFor []Awaited `json:"waits_for"`
	// Priority is "production", "interactive" or "batch"; empty outside of a cluster.
	Priority string `json:"priority,omitempty"`
	// Title is the command in one line.
	Title string `json:"command"`
	// Finished is zero before the end.
	Submitted time.Time `json:"submitted"`
	Finished  time.Time `json:"finished,omitzero"`
	// Detached jobs go on without their client.
	Detached bool `json:"detached"`
	// Submitter is the uid of the user who submitted it; nil where the coordinator does not know it.
	Submitter *uint32 `json:"submitter_uid,omitempty"`
	// User is the name of that user on the coordinator's machine, or the number; empty where unknown.
	User string `json:"user,omitempty"`
	// Reserve says that it is a reservation, and Within names the reservation that the job runs on.
	Reserve bool   `json:"reservation"`
	Within  string `json:"within,omitempty"`
	// Workspace is the directory that its ranks run in; nil if it has none.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Attempt is the newest, from 0, and Restarts counts those so far, of MaxRestarts.
	Attempt     int `json:"attempt"`
	Restarts    int `json:"restarts"`
	MaxRestarts int `json:"max_restarts"`
	// Nodes are in the order of node ranks; of a job that is over, all that it ever had, by name.
	Nodes []string `json:"nodes"`
	// Ranks and GPUs count what it has now.
	Ranks int `json:"ranks"`
	GPUs  int `json:"gpus"`
	// Result is nil before the end.
	Result *Result `json:"result,omitempty"`
	// Goodput is what the time of its ranks went into until now, or its end; nil for a reservation and
	// before the job has ranks.
	Goodput *Goodput `json:"goodput,omitempty"`
	// Start is where the time of the newest start went until now; nil before the job has nodes and
	// where ranks restart on their own.
	Start *Start `json:"start,omitempty"`
	// Saves are its checkpoints; nil if none was seen.
	Saves *Saves `json:"saves,omitempty"`
	// History is what was decided, in the order of time: the newest 64 moments.
	History []Moment `json:"-"`
}

// Awaited is a job that another one waits for.
type Awaited struct {
	Job string `json:"job"`
	// User is as in a [JobStatus].
	User     string `json:"user,omitempty"`
	Priority string `json:"priority"`
	// Preempted says that it is being preempted. Its ranks end by Until at the latest.
	Preempted bool      `json:"preempted"`
	Until     time.Time `json:"until,omitzero"`
}

// String names the job.
func (a Awaited) String() string { return a.text("") }

// At names the job, with the time that its ranks have left.
func (a Awaited) At(now time.Time) string {
	left := a.Until.Sub(now).Round(time.Second)
	if !a.Preempted || left <= 0 {
		return a.text("")
	}
	return a.text(", " + left.String() + " left")
}

func (a Awaited) text(left string) string {
	of := ""
	if a.User != "" {
		of = " of " + a.User
	}
	if a.Preempted {
		return "job " + a.Job + of + " (" + a.Priority + ", being preempted" + left + ")"
	}
	return "job " + a.Job + of + " (" + a.Priority + ")"
}

// Workspace is a directory that travels to the nodes of a job.
type Workspace struct {
	// ID is a hash of the content, in hexadecimal digits. A [JobStatus] has the first 12 of 64.
	ID string `json:"id"`
	// Bytes is the size of the archive, and Files counts all but directories.
	Bytes int64 `json:"bytes"`
	Files int   `json:"files"`
}

// Moment is something that was decided about a job.
type Moment struct {
	At time.Time `json:"at"`
	// Attempt is the newest that was started by then; -1 before the first.
	Attempt int `json:"attempt"`
	// To is what the ranks spend their time on from then on: "starting", "training", "stopping",
	// "backoff" or "waiting"; empty when that did not change, or nothing runs any more.
	To string `json:"to,omitempty"`
	// Cause is why an attempt was stopped, and Node the node to blame; empty otherwise.
	Cause  string `json:"cause,omitempty"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason"`
}
