package report

// Charge is time of the nodes of a kind: time that jobs were charged for, or idle time.
type Charge struct {
	// User is empty in a [JobStatus], and if the user is unknown. It is [OtherUsers] for all users
	// beyond those that are counted by name.
	User string
	// Kind is empty for nodes without a kind. Price is the price of a node for an hour, in the unit
	// of the capacity file; 0 if there is none.
	Kind  string
	Price float64
	// Idle says that no job was charged for this time.
	Idle bool
	// NodeHours are hours of whole nodes, and GPUHours of GPUs.
	NodeHours, GPUHours float64
}
