package report

// LogFilter chooses a part of a job's output to read.
type LogFilter struct {
	// Ranks are the ranks to read; all when empty.
	Ranks []Span
	// Attempt is the attempt to read; all when negative.
	Attempt int
	// Follow keeps reading until the end of the job.
	Follow bool
	// From are positions in files. For each of these files, reading begins at the position.
	From []LogPosition
}

// LogPosition is a place in the output of a rank. Stream is 1 for standard output and 2 for standard
// error. Offset is in bytes.
type LogPosition struct {
	Attempt, Rank, Stream int
	Offset                int64
}

// File returns the position at the beginning of the same file.
func (p LogPosition) File() LogPosition {
	p.Offset = 0
	return p
}

// LogChunk is a piece of a rank's output from a node, as the rank wrote it. It begins at its
// position.
type LogChunk struct {
	LogPosition
	Node string
	// WorldSize is the world size of the attempt; 0 if it is no longer known.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
	// Missing says what output could not be read. Data is then empty.
	Missing string
}
