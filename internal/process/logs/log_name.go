package logs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/process/console"
)

// File names a log file of a job.
type File console.Source

// Chunk is a piece of a log file from Offset on, at most 64 KiB.
type Chunk struct {
	File
	Offset int64
	Data   []byte
}

// Filter selects log files.
type Filter struct {
	// Attempt counts from 0, or is AllAttempts.
	Attempt int
	// Ranks chooses ranks; nil chooses all. Several goroutines call it, also goroutines that carry
	// output, so it must neither wait nor change anything.
	Ranks func(rank int) bool
}

// AllAttempts is the Attempt of a Filter that chooses every attempt.
const AllAttempts = -1

func (f Filter) attempt(n int) bool { return f.Attempt == AllAttempts || f.Attempt == n }

func (f Filter) file(file File) bool {
	return f.attempt(file.Attempt) && (f.Ranks == nil || f.Ranks(file.Rank))
}

// String names the log in messages.
func (f File) String() string {
	return fmt.Sprintf("%s log of rank %d, attempt %d", f.Stream, f.Rank, f.Attempt)
}

func (f File) compare(o File) int {
	return console.Source(f).Compare(console.Source(o))
}

func (f File) dir() string  { return fmt.Sprintf("attempt-%d", f.Attempt) }
func (f File) base() string { return fmt.Sprintf("rank-%d.%s.log", f.Rank, f.Stream) }
func (f File) path() string { return f.dir() + "/" + f.base() }

// parseAttempt is the inverse of dir.
func parseAttempt(name string) (int, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "attempt-"), 10, 31)
	return int(n), err == nil && File{Attempt: int(n)}.dir() == name
}

// parseFile is the inverse of base, for a file in the directory of an attempt.
func parseFile(attempt int, name string) (File, bool) {
	rank, _, _ := strings.Cut(strings.TrimPrefix(name, "rank-"), ".")
	n, err := strconv.ParseUint(rank, 10, 31)
	for _, s := range []console.Stream{console.Stdout, console.Stderr} {
		if f := (File{attempt, int(n), s}); err == nil && f.base() == name {
			return f, true
		}
	}
	return File{}, false
}
