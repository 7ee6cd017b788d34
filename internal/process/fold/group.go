package fold

import (
	"strconv"
	"strings"
	"time"
)

// Kind is what a part of a line is.
type Kind byte

const (
	// Words are the same in all lines of a group.
	Words Kind = iota
	// Integer is digits, with a sign. Lines with different ones are different, unless they differ by nature: they are the rank's number,
	// or nearly each rank has its own.
	Integer
	// Number is a decimal, or a number with a unit. nan and inf are words.
	Number
	// Moment is a date, a time of day, or a duration as 1:02:03.
	Moment
	// Name is a hash, an id, or a name of a temporary file. Different ones are as different integers.
	Name
	// Address is a place in memory.
	Address
	// Bar is what fills a progress bar.
	Bar
)

// Part is a piece of the text of a group: words, or a value of which the least and the greatest are given as they were printed.
type Part struct {
	Kind Kind
	// Text is words; empty for a value.
	Text string
	// Low and High are the extremes of a value, the same where all lines agree.
	Low, High string
}

// String is the part as the text of its group has it.
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

// unitLen is the length of the unit that two numbers have in common: it is shown once.
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

// common is the length of what two moments have in common, in whole numbers.
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

// Group is lines that are alike in all but their values, each of a rank in Ranks, and at least one of each.
type Group struct {
	Stream Stream
	Ranks  Ranks
	// All says that no rank is missing of those whose lines were expected.
	All bool
	// Parts are the text, without colours.
	Parts []Part
	// Cut counts the bytes after the text, which are the same in all lines.
	Cut int
	// Lines counts them. There are more lines than ranks only where ranks have repeated themselves many times.
	Lines int
	// Sample is the text of one of the lines, without colours.
	Sample string
	// First and Last are when the first and the last of the lines came.
	First, Last time.Time
}

// Text is what the lines say, with ranges for values in which they differ. It may have any bytes but those of escape sequences: control
// characters are for the caller to make visible.
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

// Who is the ranks of the group in a few words: [r0-511 -r37], or [all 251 that run] where those would be too many.
func (g Group) Who() string {
	if ranks := g.Ranks.String(); !g.All || !strings.HasSuffix(ranks, " more") {
		return "[" + ranks + "]"
	}
	return "[all " + strconv.Itoa(g.Ranks.Len()) + " that run]"
}

// String is the group as one line: who, and what they say.
func (g Group) String() string { return g.Who() + " " + g.Text() }
