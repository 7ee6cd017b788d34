package fold

import (
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of a part of a line.
type Kind byte

const (
	Words Kind = iota
	// Integer is digits with a sign. Lines with different integers do not fold, unless the integer
	// is the rank's number or differs on nearly every rank.
	Integer
	Number
	Moment
	// Name is a hash, an id or the name of a temporary file. Names fold as integers do.
	Name
	Address
	Bar
)

// Part is a piece of a group's text: words, or the range of a value.
type Part struct {
	Kind Kind
	// Text is words, or empty for a value.
	Text string
	// Low and High are the extremes of a value as they were printed. They are equal if all lines
	// agree.
	Low, High string
}

// String is the part as shown in the text of its group.
func (p Part) String() string {
	switch {
	case p.Kind == Words:
		return p.Text
	case p.Low == p.High:
		return p.Low
	case p.Kind == Bar:
		return p.High
	case p.Kind == Name || p.Kind == Address:
		return p.Low + ".." + p.High
	case p.Kind == Moment && len(p.Low) == len(p.High):
		return p.Low + ".." + p.High[common(p.Low, p.High):]
	case p.Kind == Moment:
		return p.Low + ".." + p.High
	}
	return p.Low[:len(p.Low)-unitLen(p.Low, p.High)] + ".." + p.High
}

// unitLen is the length of the unit that two numbers share. It is shown once.
func unitLen(a, b string) int {
	n := 0
	for n < len(a) && classes[a[len(a)-1-n]] != digit && strings.HasSuffix(b, a[len(a)-1-n:]) {
		n++
	}
	if n == len(b) || classes[b[len(b)-1-n]] != digit || classes[a[len(a)-1-n]] != digit {
		return 0
	}
	return n
}

// common is the length of the beginning that two moments share, without a part of a number.
func common(a, b string) int {
	last := 0
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			break
		}
		if classes[a[i]] != digit {
			last = i + 1
		}
	}
	return last
}

// Group is one or more lines that are alike except for their values. Each rank in Ranks printed at
// least one.
type Group struct {
	Stream Stream
	Ranks  Ranks
	// All says that every expected rank is in Ranks.
	All bool
	// Parts are the text without colours.
	Parts []Part
	// Cut is the number of bytes after the text. These bytes are the same in all lines.
	Cut int
	// Lines is the number of lines. It exceeds the number of ranks if ranks repeated themselves
	// many times.
	Lines int
	// First and Last are the times of the first and the last line.
	First, Last time.Time
}

// Text is the text of the lines, with ranges for values that differ. It has no escape sequences. It
// may have control characters, which the caller must make visible.
func (g Group) Text() string {
	var text strings.Builder
	for _, p := range g.Parts {
		text.WriteString(p.String())
	}
	if g.Cut > 0 {
		text.WriteString("... +" + strconv.Itoa(g.Cut) + " bytes")
	}
	if n := g.Ranks.Len(); g.Lines > n {
		text.WriteString(" (" + strconv.Itoa(g.Lines) + " lines)")
	}
	return text.String()
}

// Who names the ranks in a few words: [r0-511 -r37], or [all 251 that run] if there are too many
// ranges.
func (g Group) Who() string {
	if ranks := g.Ranks.String(); !g.All || !strings.HasSuffix(ranks, " more") {
		return "[" + ranks + "]"
	}
	return "[all " + strconv.Itoa(g.Ranks.Len()) + " that run]"
}

// String is the group as one line.
func (g Group) String() string { return g.Who() + " " + g.Text() }
