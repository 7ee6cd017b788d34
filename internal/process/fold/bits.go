package fold

import (
	"math/bits"
	"slices"
)

// maxFew is the number of ranks that a set lists before it becomes a bitmap, which is larger.
const maxFew = 8

// set is a growing set of ranks from 0 to MaxRank. A small set is a list, so that a line of one
// rank among 100,000 needs no bitmap.
type set struct {
	n     int
	few   []int32
	words []uint64
}

func (s *set) has(rank int) bool {
	if s.n <= maxFew {
		return slices.Contains(s.few, int32(rank))
	}
	word := rank / 64
	return word < len(s.words) && s.words[word]&(1<<(rank%64)) != 0
}

// add reports whether the rank is new.
func (s *set) add(rank int) bool {
	if s.has(rank) {
		return false
	}
	if s.n++; s.n <= maxFew {
		s.few = append(s.few, int32(rank))
		return true
	}
	if s.n == maxFew+1 {
		for _, r := range s.few {
			s.mark(int(r))
		}
	}
	s.mark(rank)
	return true
}

func (s *set) mark(rank int) {
	word := rank / 64
	if word >= len(s.words) {
		s.words = slices.Grow(s.words, word+1-len(s.words))
		old := len(s.words)
		s.words = s.words[:word+1]
		clear(s.words[old:])
	}
	s.words[word] |= 1 << (rank % 64)
}

// reset empties the set and keeps its memory.
func (s *set) reset() {
	s.n, s.few = 0, s.few[:0]
	clear(s.words)
	s.words = s.words[:0]
}

func (s *set) ranks() (r Ranks) {
	if s.n <= maxFew {
		slices.Sort(s.few)
		for _, rank := range s.few {
			r = r.With(int(rank))
		}
		return r
	}
	for first := s.next(0, true); first >= 0; {
		end := s.next(first, false)
		r = append(r, Range{first, end - 1})
		first = s.next(end, true)
	}
	return r
}

// next returns the first rank at or after from that is in the bitmap, or, if in is false, the first
// that is not in the bitmap. It returns -1 if there is no such rank.
func (s *set) next(from int, in bool) int {
	for word := from / 64; word < len(s.words); word++ {
		w := s.words[word]
		if !in {
			w = ^w
		}
		if word == from/64 {
			w &= ^uint64(0) << (from % 64)
		}
		if w != 0 {
			return word*64 + bits.TrailingZeros64(w)
		}
	}
	if in {
		return -1
	}
	return len(s.words) * 64
}
