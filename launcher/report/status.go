package report

import (
	"net/netip"
	"time"
)

// Status is the present state of a cluster.
type Status struct {
	// Version is the coordinator's version of golaunch, and Since is when the coordinator started.
	Version string
	Since   time.Time
	// Coordinators are the addresses, HOST:PORT, of a cluster's coordinators, the leader first;
	// empty if there is only one. Silent are the coordinators that do not answer the leader.
	Coordinators, Silent []string
	// Requested are the nodes that the coordinator has requested from providers and that have not
	// joined, in at most 64 entries. If the coordinator cannot request nodes for a job, Blocked
	// names the job and the reason.
	Requested []RequestedNodes
	Blocked   string
	// Nodes are sorted by name.
	Nodes []NodeStatus
	// Jobs are in the order of submission: all open jobs, and the last finished ones.
	Jobs []JobStatus
	// Charges say how the time of a cluster's nodes was spent since Counted, the time when the
	// first node joined. First come the charges of users, sorted by user and kind. They include
	// jobs that are no longer in Jobs. Then comes the idle time of each kind. Charges is empty in
	// the status of one job, and for a job without a cluster.
	Counted time.Time
	Charges []Charge
}

// RequestedNodes are nodes that the coordinator requested from a provider at one time and that have
// not joined.
type RequestedNodes struct {
	Kind  string    `json:"kind"`
	Nodes int       `json:"nodes"`
	Since time.Time `json:"since"`
	// State is the provider's description of the first of these nodes, such as "Slurm job 4711,
	// pending: Priority"; empty until the provider has listed the node.
	State string `json:"state,omitempty"`
}

// Query limits a [Status].
type Query struct {
	// Job is the only job to describe, with its nodes; empty means all jobs.
	Job string
	// Jobs omits the nodes, and Open omits finished jobs. Brief omits the History, and the Tail,
	// Traceback and Kernel of a Cause.
	Jobs, Open, Brief bool
}

// NodeStatus is one node of a cluster. Its JSON has only the fields that golaunch status prints
// unchanged (docs/json.md). The command adds the State, and counts the GPUs.
type NodeStatus struct {
	Name string `json:"name"`
	// Addr is the address at which other nodes reach this one.
	Addr netip.Addr `json:"address"`
	GPUs []GPU      `json:"-"`
	// CPUs counts the logical CPUs that ranks may use, and Memory is in bytes; 0 if unknown.
	CPUs   int               `json:"cpus"`
	Memory int64             `json:"-"`
	Labels map[string]string `json:"labels"`
	// Silent is the time since the agent's last message. It is 0 if the agent is connected and has
	// sent a message within half of its lease.
	Silent time.Duration `json:"-"`
	// Drained says that the node gets no more ranks.
	Drained bool `json:"-"`
	// Holds says which part of the node each job and each reservation has, in the order of
	// submission.
	Holds []Holding `json:"holds"`
	// Excluded are the jobs that use the node only if no other node fits.
	Excluded []Exclusion `json:"excluded"`
}

// Holding is the part of a node that a job or a reservation has.
type Holding struct {
	Job string `json:"job"`
	// GPUs are indexes; a job without GPUs has none.
	GPUs []int `json:"gpus"`
}

// Exclusion says that a job uses the node only if no other node fits, because of failures on the
// node.
type Exclusion struct {
	// Job is the excluding job. It is empty if all new jobs exclude the node, because its hardware
	// failed.
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
	// Waits says what the job waits for. When the job has ended, Waits says how it ended.
	Waits string `json:"waits,omitempty"`
	// WaitsFor are the jobs that this job waits for, at most 17: the previous job in the queue, and
	// the jobs that are being preempted for this one.
	WaitsFor []Awaited `json:"waits_for"`
	// Priority is "production", "interactive" or "batch"; empty outside of a cluster.
	Priority string `json:"priority,omitempty"`
	// Title is the command in one line.
	Title string `json:"command"`
	// Finished is zero before the end.
	Submitted time.Time `json:"submitted"`
	Finished  time.Time `json:"finished,omitzero"`
	// Detached says that the job runs on when its client is gone.
	Detached bool `json:"detached"`
	// Submitter is the uid of the user who submitted the job; nil if the coordinator does not know
	// the user.
	Submitter *uint32 `json:"submitter_uid,omitempty"`
	// User is the submitter's name on the coordinator's machine, or the uid; empty where unknown.
	User string `json:"user,omitempty"`
	// Reserve says that this is a reservation. Within names the reservation that a job runs on.
	Reserve bool   `json:"reservation"`
	Within  string `json:"within,omitempty"`
	// Workspace is the directory that travels to the job's nodes; nil if there is none.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Attempt is the newest attempt, from 0. Restarts counts the restarts so far; MaxRestarts is
	// their limit.
	Attempt     int `json:"attempt"`
	Restarts    int `json:"restarts"`
	MaxRestarts int `json:"max_restarts"`
	// Nodes are in the order of node ranks. For a finished job, they are all nodes that it ever
	// had, sorted by name.
	Nodes []string `json:"nodes"`
	// Ranks and GPUs count what the job has now.
	Ranks int `json:"ranks"`
	GPUs  int `json:"gpus"`
	// Result is nil before the end.
	Result *Result `json:"result,omitempty"`
	// Goodput says what the time of the job's ranks was spent on until now, or until its end; nil
	// for a reservation and before the job has ranks.
	Goodput *Goodput `json:"goodput,omitempty"`
	// Start says what the time of the newest start was spent on until now; nil before the job has
	// nodes and where ranks restart on their own.
	Start *Start `json:"start,omitempty"`
	// Saves are the job's checkpoints; nil if golaunch saw none.
	Saves *Saves `json:"saves,omitempty"`
	// History has the newest 64 decisions, the oldest first.
	History []Moment `json:"-"`
	// Charges are the charges of the job until now, by kind of node. A job within a reservation has
	// none, because the reservation is charged instead. The status of one job alone has none
	// either.
	Charges []Charge `json:"-"`
}

// Awaited is a job for which another job waits.
type Awaited struct {
	Job string `json:"job"`
	// User is as in a [JobStatus].
	User     string `json:"user,omitempty"`
	Priority string `json:"priority"`
	// Preempted says that the job is being preempted. Its ranks end by Until at the latest.
	Preempted bool      `json:"preempted"`
	Until     time.Time `json:"until,omitzero"`
}

// String names the job.
func (a Awaited) String() string { return a.text("") }

// At names the job and says how much time its ranks still have.
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
	// Bytes is the size of the archive. Files counts everything but directories.
	Bytes int64 `json:"bytes"`
	Files int   `json:"files"`
}

// Moment is a decision about a job, in the job's History.
type Moment struct {
	At time.Time `json:"at"`
	// Attempt is the newest attempt at that time; -1 before the first.
	Attempt int `json:"attempt"`
	// To is the state of the ranks from this moment on: "starting", "training", "stopping",
	// "backoff" or "waiting". It is empty if that did not change, or if no rank is left.
	To string `json:"to,omitempty"`
	// Cause is why an attempt was stopped, and Node the node to blame; empty otherwise.
	Cause  string `json:"cause,omitempty"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason"`
}
