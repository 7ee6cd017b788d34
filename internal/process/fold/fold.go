// Package fold makes one line of lines that many ranks print nearly alike: who prints them is a set, and a value in which they differ is
// a range, while what is odd stays apart.
//
//	[r0-511 -r37] step 120 loss=0.41..0.43
//	[r37] step 120 loss=nan
//
// A [Folder] is told lines with their times, and gives [Group] values. It reads no clock, starts nothing, and gives the same groups for the same
// lines. Every line is in exactly one group, and a group has no rank that did not print such a line with values in its ranges.
//
// A group is due when all ranks that are expected to have said it, and at latest when a window has passed since its first line. Ranks
// that come later make another group. Lines fold by their words and integers: those of step 120 are a group, and those of step 121
// another. An integer that nearly each rank has for itself, as a pid, becomes a range once that was seen. Decimals become ranges but for
// those far from the others. Lines without any words fold only if they are equal.
//
// The lines of a rank come in its order, as far as they are of one block: lines that are indented, with the one before and the one after. Others may
// be put in another order, since threads of ranks race with each other, to fold with those of other ranks.
//
// Lines are compared without colours. Everything is bounded: of what is open at a time, the oldest goes out early if it is too much.
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

// Window is how long a line waits for others by default. A line of one rank alone is shown within it.
const Window = 150 * time.Millisecond

const (
	// maxOpen is the most groups of a stream that are open at a time, and maxBytes the memory of all their lines.
	maxOpen  = 16 << 10
	maxBytes = 64 << 20
)

// Line is a line of a rank's output, without or with its newline.
type Line struct {
	Rank   int
	Stream Stream
	// Text is not kept.
	Text []byte
	// At is when it came. Time does not go back: an earlier one counts as the latest that was told.
	At time.Time
}

// Folder folds lines. One goroutine owns it.
type Folder struct {
	window  time.Duration
	want    set
	lanes   [256]*lane
	used    []*lane
	scanner scanner
	// base is the first time that was told, and now the latest since.
	base  time.Time
	now   time.Duration
	out   []Group
	bytes int
	free  []*node
	kept  int
	split splitter
	// watch, if set, is told which lines are in which group, by their numbers.
	watch func(g Group, lines []uint64)
	lines uint64
}

// New is a folder whose lines wait for others for a time; for [Window] if it is 0. Of the ranks that are expected no more need be known
// than who still lives; without any, all groups wait until their time has passed.
func New(window time.Duration, expected Ranks) *Folder {
	if window <= 0 {
		window = Window
	}
	f := &Folder{window: window}
	f.scanner.seed = maphash.MakeSeed()
	f.Expect(expected)
	return f
}

// Expect says which ranks live from now on, and gives the groups that wait for no other.
func (f *Folder) Expect(expected Ranks) []Group {
	f.want.reset()
	for _, of := range expected {
		for rank := max(0, of.First); rank <= min(of.Last, MaxRank); rank++ {
			f.want.add(rank)
		}
	}
	for _, l := range f.used {
		l.recount()
		l.complete()
	}
	return f.take()
}

// Add tells of a line, and gives the groups that are due by it.
func (f *Folder) Add(line Line) []Group {
	f.tick(line.At)
	f.scanner.line(line.Text)
	f.lines++
	f.lane(line.Stream).add(line.Rank)
	return f.take()
}

// Tick gives the groups that are due at a time.
func (f *Folder) Tick(now time.Time) []Group {
	f.tick(now)
	return f.take()
}

// Due is when Tick has something to give; false when nothing waits.
func (f *Folder) Due() (time.Time, bool) {
	var first *node
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

// Flush gives all that waits.
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

func (f *Folder) lane(of Stream) *lane {
	if f.lanes[of] == nil {
		f.lanes[of] = newLane(f, of)
		f.used = append(f.used, f.lanes[of])
	}
	return f.lanes[of]
}
