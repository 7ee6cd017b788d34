package wire

// Query limits a [report.Status].
type Query struct {
	// Job is the only job to describe, with its nodes; empty means all jobs.
	Job string
	// Jobs omits the nodes, and Open the jobs that are over. Brief omits what ranks wrote before
	// they failed: Tail, Traceback and Kernel of a Cause.
	Jobs, Open, Brief bool
}
