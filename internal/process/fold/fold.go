// Package fold merges lines that many ranks print nearly alike into one line with a set of ranks
// and ranges of values. Lines that differ in an unusual way stay separate.
//
//	[r0-511 -r37] step 120 loss=0.41..0.43
//	[r37] step 120 loss=nan
//
// A [Folder] takes lines with their times and returns [Group] values. It reads no clock and starts
// no goroutine, and the same lines always give the same groups. Every line is in exactly one group.
// Every rank of a group printed such a line, with values in the group's ranges.
//
// A group is due when all expected ranks have printed it, and at the latest a window after its
// first line. Later ranks form another group. Lines fold if their words and integers are equal: the
// lines of step 120 form one group, and the lines of step 121 another. An integer that differs on
// nearly every rank, such as a pid, becomes a range once the folder has noticed that. Decimals
// become ranges, except outliers. Lines without words fold only if they are equal.
//
// The lines of a rank keep their order within a block, which is a line and the indented lines after
// it. Other lines may be reordered to fold with lines of other ranks, because a rank's threads race
// with each other.
//
// Colours are ignored. Memory is bounded: if too much is open, the oldest groups are returned
// early.
package fold

import (
	"hash/maphash"
	"time"
)

// Stream is an output of a process. Lines of different streams never fold.
type Stream uint8

const (
	// Stdout is standard output.
	Stdout Stream = 1
	// Stderr is standard error.
	Stderr Stream = 2
)

// Window is how long a line waits for others by default. A line that only one rank prints is shown
// within it.
const Window = 150 * time.Millisecond

const (
	// maxOpen bounds the open groups of a stream, and maxBytes the memory of all their lines.
	maxOpen  = 16 << 10
	maxBytes = 64 << 20
)

// Line is a line of a rank's output, with or without its newline.
type Line struct {
	Rank   int
	Stream Stream
	// Text is not kept after the call.
	Text []byte
	// At is when the line was read. A time before the latest At counts as the latest At.
	At time.Time
}

// Folder folds lines. It belongs to one goroutine.
type Folder struct {
	window  time.Duration
	want    set
	streams [256]*streamFolder
	used    []*streamFolder
	scanner scanner
	// base is the time of the first line, and now the latest time since base.
	base  time.Time
	now   time.Duration
	out   []Group
	bytes int
	free  []*openGroup
	kept  int
	split splitter
	// watch, if set, gets the numbers of the lines in each group. It is for tests.
	watch func(g Group, lines []uint64)
	lines uint64
}

// New returns a folder whose lines wait for lines of other ranks for a window, or for [Window] if
// it is 0. Without expected ranks, every group waits for the whole window.
func New(window time.Duration, expected Ranks) *Folder {
	if window <= 0 {
		window = Window
	}
	f := &Folder{window: window}
	f.scanner.seed = maphash.MakeSeed()
	f.Expect(expected)
	return f
}

// Expect sets the ranks that are expected to print lines, and returns the groups that are complete
// now.
func (f *Folder) Expect(expected Ranks) []Group {
	f.want.reset()
	for _, of := range expected {
		for rank := max(0, of.First); rank <= min(of.Last, MaxRank); rank++ {
			f.want.add(rank)
		}
	}
	for _, l := range f.used {
		l.recount()
		l.emitComplete()
	}
	return f.take()
}

// Add takes a line and returns the groups that it makes due.
func (f *Folder) Add(line Line) []Group {
	f.tick(line.At)
	f.scanner.line(line.Text)
	f.lines++
	f.stream(line.Stream).add(line.Rank)
	return f.take()
}

// Tick returns the groups that are due at a time.
func (f *Folder) Tick(now time.Time) []Group {
	f.tick(now)
	return f.take()
}

// Due returns the time at which Tick will have a group to return; false if no group is open.
func (f *Folder) Due() (time.Time, bool) {
	var first *openGroup
	for _, l := range f.used {
		if n := l.oldest; n != nil && (first == nil || n.first < first.first) {
			first = n
		}
	}
	if first == nil {
		return time.Time{}, false
	}
	return f.base.Add(first.first + f.window), true
}

// Flush returns all open groups.
func (f *Folder) Flush() []Group {
	for _, l := range f.used {
		for l.oldest != nil {
			l.close(l.oldest)
		}
	}
	return f.take()
}

func (f *Folder) tick(now time.Time) {
	if f.base.IsZero() {
		f.base = now
	}
	f.now = max(f.now, now.Sub(f.base))
	for _, l := range f.used {
		for l.oldest != nil && l.oldest.first+f.window <= f.now {
			l.close(l.oldest)
		}
	}
}

func (f *Folder) take() []Group {
	out := f.out
	f.out = nil
	return out
}

func (f *Folder) stream(of Stream) *streamFolder {
	if f.streams[of] == nil {
		f.streams[of] = newStreamFolder(f, of)
		f.used = append(f.used, f.streams[of])
	}
	return f.streams[of]
}
