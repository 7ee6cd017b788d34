package wire

import "github.com/golaunch/golaunch/launcher/report"

// LogFilter chooses what to read of a job's output.
type LogFilter struct {
	// Ranks are the ranks to read; empty means all.
	Ranks []report.Span
	// Attempt is the attempt to read; a negative one means all.
	Attempt int
	// Follow means to continue until the job is over.
	Follow bool
	// From are positions in files. The part before a position is not wanted.
	From []LogPosition
}

// LogPosition is a place in the output of one rank. Stream is 1 for standard output and 2 for
// standard error. Offset is in bytes.
type LogPosition struct {
	Attempt, Rank, Stream int
	Offset                int64
}

// File returns the beginning of the file that the position is in.
func (p LogPosition) File() LogPosition {
	p.Offset = 0
	return p
}

// LogChunk is a piece of a rank's output, as the rank wrote it.
type LogChunk struct {
	LogPosition
	// WorldSize is the world size of the attempt; 0 if it is not known any more.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
}
