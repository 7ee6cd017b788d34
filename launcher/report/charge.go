package report

// Charge is what jobs were charged for, or what was idle, of the time of nodes of a kind.
type Charge struct {
	// User is empty where unknown and in a [JobStatus], and [OtherUsers] for those who are too many to
	// be counted by name.
	User string
	// Kind is empty for nodes without one. Price is that of a node for an hour, in the unit of the
	// capacity file; 0 where there is none.
	Kind  string
	Price float64
	// Idle says that no job was charged for it.
	Idle bool
	// NodeHours are hours of whole nodes, and GPUHours of GPUs.
	NodeHours, GPUHours float64
}
