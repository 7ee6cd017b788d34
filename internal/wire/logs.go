package wire

// Span is a range of ranks, both ends included.
type Span struct{ From, To int }

// LogFilter chooses what to read of a job's output.
type LogFilter struct {
	// Ranks are read; all when empty.
	Ranks []Span
	// Attempt is read, or all when it is negative.
	Attempt int
	// Follow goes on until the job is over.
	Follow bool
	// From are the files of which the part before Offset is not wanted.
	From []LogPosition
}

// LogPosition is a place in the output of one rank: Stream is 1 for standard output and 2 for standard error, Offset in bytes.
type LogPosition struct {
	Attempt, Rank, Stream int
	Offset                int64
}

// File is the position's file alone.
func (p LogPosition) File() LogPosition {
	p.Offset = 0
	return p
}

// LogChunk is a piece of a rank's output, as the rank wrote it.
type LogChunk struct {
	LogPosition
	// WorldSize is that of the attempt; 0 when it is not known any more.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
}
