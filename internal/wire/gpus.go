package wire

// GPU is a GPU of a node with what is in use of its memory, in bytes, and by whom.
type GPU struct {
	UUID        string
	Used, Total int64
	// Holders are the processes with a compute context there, as far as the driver tells them.
	Holders []GPUHolder
}

// GPUHolder is a process with memory of a GPU. Job is empty where it belongs to no rank that golaunch runs there.
type GPUHolder struct {
	PID int
	// Bytes is -1 where the driver does not tell.
	Bytes int64
	Job   string
	Rank  int
}
