package stacks

import (
	"fmt"
	"strconv"
	"strings"
)

// Range is the ranks from First to Last, both included.
type Range struct{ First, Last int }

// Set is a set of ranks: sorted ranges that do not touch. As text it is like 0-36,38-511.
type Set []Range

// add adds a rank that is not below the others.
func (s Set) add(rank int) Set {
	if n := len(s); n > 0 {
		switch last := &s[n-1]; {
		case rank <= last.Last:
			return s
		case rank == last.Last+1:
			last.Last = rank
			return s
		}
	}
	return append(s, Range{rank, rank})
}

// Len is the number of ranks.
func (s Set) Len() (n int) {
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

func (r Range) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func (s Set) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

// MarshalText is String.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Label is the set for people in at most that many bytes: r0-36,38-511, or r0-511 -r37 if few are
// missing. If it is too long, it counts the rest.
func (s Set) Label(most int) string {
	if len(s) == 0 {
		return "no rank"
	}
	plain := "r" + s.String()
	if but := s.withGaps(); but != "" && len(but) < len(plain) {
		plain = but
	}
	if len(plain) <= most {
		return plain
	}
	return s.beginning(most)
}

// withGaps is a set as all ranks from its first to its last, less some. It is empty if more ranks
// are missing than present.
func (s Set) withGaps() string {
	all := Range{s[0].First, s[len(s)-1].Last}
	var gaps Set
	for i := range len(s) - 1 {
		gaps = append(gaps, Range{s[i].Last + 1, s[i+1].First - 1})
	}
	if len(gaps) == 0 || gaps.Len() >= s.Len() {
		return ""
	}
	return "r" + all.String() + " -r" + gaps.String()
}

// beginning is as many ranges as fit, with the number of other ranks.
func (s Set) beginning(most int) string {
	for n := len(s) - 1; n > 0; n-- {
		if text := fmt.Sprintf("r%s and %d more", s[:n], s[n:].Len()); len(text) <= most {
			return text
		}
	}
	return fmt.Sprintf("%d ranks", s.Len())
}
