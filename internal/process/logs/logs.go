// Package logs carries the output of ranks: raw bytes to one file per rank and stream, and whole lines to the console.
//
// Each stream of a rank is a pipe with one goroutine that reads it. What it reads goes to the log file first and then, as
// prefixed lines, to the console, so that a line the console could not take is still in the file. A rank is never held up by a
// full disk, and by a console that nobody reads for a second at most. Memory is bounded, whatever a rank writes: about 140 KiB
// for each stream and 2 MiB for each side of the console.
//
// The files can be read back, also while they are written: a Reader gives them in chunks, and a Viewer shows chunks as they would be
// shown live. Nobody who reads holds up a rank.
//
// Everything here is for Linux: pipes are asked what they hold (FIONREAD), so that a flush neither sleeps nor waits for an end of
// file that a grandchild may keep from coming.
package logs

// Stream is one of the two outputs of a process, or a set of them: Stdout|Stderr is both, 0 none. torchrun has the same numbers
// (torch/distributed/elastic/multiprocessing/api.py, Std).
type Stream int

const (
	// Stdout is standard output.
	Stdout Stream = 1
	// Stderr is standard error.
	Stderr Stream = 2
)

// String is "stdout" or "stderr", as in the names of log files.
func (s Stream) String() string {
	if s == Stdout {
		return "stdout"
	}
	return "stderr"
}
