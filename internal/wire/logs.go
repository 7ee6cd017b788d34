package wire

import (
	"google.golang.org/grpc"
)

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
	// RAS asks for a [RAS] instead, in JSON, of the node that has node rank 0.
	RAS bool
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
	Node string
	// WorldSize is that of the attempt; 0 when it is not known any more.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
	// Missing says what could not be read, instead of Data.
	Missing string
}

// ReadLogs asks an agent for the output of a job's ranks on its node.
type ReadLogs struct {
	Filter LogFilter
	// ID is what the answer goes under, and Via the connection on which it goes; the session knows it.
	ID  string
	Via *grpc.ClientConn
}
