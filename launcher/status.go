package launcher

// Query limits a report.Status.
type Query struct {
	// Job is the only one that is described, with its nodes; empty for all.
	Job string
	// Jobs leaves out the nodes, Open the jobs that are over, and Brief what the ranks wrote before
	// they failed, Tail, Traceback and Kernel of a Cause, and the History.
	Jobs, Open, Brief bool
}
