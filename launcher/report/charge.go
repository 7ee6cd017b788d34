package report

// Charge is an amount of time of the nodes of one kind: either time that a user's jobs were charged
// for, or idle time.
type Charge struct {
	// User is the user who was charged. It is empty in a [JobStatus], and if the user is unknown.
	// [OtherUsers] stands for all users who are not counted by name.
	User string
	// Kind is empty for nodes without a kind. Price is the price of a node for an hour, in the unit
	// of the prices in the capacity file; 0 if the file names no price.
	Kind  string
	Price float64
	// Idle says that no job was charged for this time.
	Idle bool
	// NodeHours is the time in hours of one whole node, and GPUHours in hours of one GPU.
	NodeHours, GPUHours float64
}
