package wire

// GPU is a GPU of a node, with its memory in bytes and the processes that use it.
type GPU struct {
	UUID        string
	Used, Total int64
	// Holders are the processes with a compute context on the GPU, as far as the driver names them.
	Holders []GPUHolder
}

// GPUHolder is a process that uses a GPU's memory. Job is empty if it belongs to no rank that
// golaunch runs there.
type GPUHolder struct {
	PID int
	// Bytes is -1 if the driver does not say.
	Bytes int64
	Job   string
	Rank  int
}
