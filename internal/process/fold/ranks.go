package fold

import (
	"iter"
	"slices"
	"strconv"
)

// MaxRank is the highest rank whose lines fold. Each line of a higher rank is a group of its own.
const MaxRank = 1<<20 - 1

// Range has the ranks from First to Last, both included.
type Range struct{ First, Last int }

// Ranks is a set of ranks: sorted ranges that neither touch nor overlap.
type Ranks []Range

// World returns all ranks of a job of the given size.
func World(size int) Ranks {
	if size < 1 {
		return nil
	}
	return Ranks{{0, size - 1}}
}

// Of returns the set of the given ranks, which may come in any order.
func Of(ranks ...int) Ranks {
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	var r Ranks
	for _, rank := range sorted {
		r = r.With(rank)
	}
	return r
}

// With adds a rank that is at least as high as the others.
func (r Ranks) With(rank int) Ranks {
	if last := len(r) - 1; last >= 0 && rank <= r[last].Last+1 {
		r[last].Last = max(rank, r[last].Last)
		return r
	}
	return append(r, Range{rank, rank})
}

// Len is the number of ranks.
func (r Ranks) Len() int {
	n := 0
	for _, of := range r {
		n += of.Last - of.First + 1
	}
	return n
}

// All yields the ranks in order.
func (r Ranks) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, of := range r {
			for rank := of.First; rank <= of.Last; rank++ {
				if !yield(rank) {
					return
				}
			}
		}
	}
}

// Gaps returns the ranks between the first and the last rank that are not in the set.
func (r Ranks) Gaps() (missing Ranks) {
	for i := 1; i < len(r); i++ {
		missing = append(missing, Range{r[i-1].Last + 1, r[i].First - 1})
	}
	return missing
}

// maxRanges is the number of ranges that a text names.
const maxRanges = 8

// String names the set in at most a line: r37, r0-3,8, or r0-511 -r37 if that is no longer. It
// counts the ranges after the eighth: r0,2,4,6,8,10,12,14 +248 more.
func (r Ranks) String() string {
	if len(r) == 0 {
		return "no rank"
	}
	plain := r.list()
	if len(r) < 2 || len(r)-1 > maxRanges {
		return plain
	}
	whole := Ranks{{r[0].First, r[len(r)-1].Last}}
	if less := whole.list() + " -" + r.Gaps().list(); len(less) <= len(plain) || len(r) > maxRanges {
		return less
	}
	return plain
}

// MarshalText names all ranks of the set: 0-36,38-511.
func (r Ranks) MarshalText() ([]byte, error) { return r.appendTo(nil), nil }

func (r Ranks) appendTo(text []byte) []byte {
	for i, of := range r {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(of.First), 10)
		if of.Last > of.First {
			text = strconv.AppendInt(append(text, '-'), int64(of.Last), 10)
		}
	}
	return text
}

func (r Ranks) list() string {
	text := r[:min(len(r), maxRanges)].appendTo([]byte{'r'})
	if len(r) > maxRanges {
		text = append(text, " +"...)
		text = strconv.AppendInt(text, int64(r[maxRanges:].Len()), 10)
		text = append(text, " more"...)
	}
	return string(text)
}
