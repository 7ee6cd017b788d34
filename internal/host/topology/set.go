package topology

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Limit is one more than the highest number in a Set. It is glibc's CPU_SETSIZE, and more than the
// NUMA nodes of any kernel.
const Limit = 1024

// Set is a set of CPUs or NUMA nodes. Sets are values: they compare with ==, and the zero Set is
// empty.
type Set [Limit / 64]uint64

// SetOf is the set of some numbers, each from 0 to Limit-1.
func SetOf(numbers ...int) (s Set) {
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

// Add adds n, from 0 to Limit-1.
func (s *Set) Add(n int) { s[n/64] |= 1 << (n % 64) }

// Has reports whether n is in the set.
func (s *Set) Has(n int) bool { return n >= 0 && n < Limit && s[n/64]&(1<<(n%64)) != 0 }

// And is the intersection.
func (s Set) And(t Set) Set {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

// Or is the union.
func (s Set) Or(t Set) Set {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// Without is the set of the elements of s that are not in t.
func (s Set) Without(t Set) Set {
	for i := range s {
		s[i] &^= t[i]
	}
	return s
}

// Meets reports whether the sets intersect.
func (s *Set) Meets(t *Set) bool {
	for i, w := range s {
		if w&t[i] != 0 {
			return true
		}
	}
	return false
}

// Empty reports whether the set is empty.
func (s *Set) Empty() bool { return *s == Set{} }

// Len is the number of elements.
func (s *Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// First is the lowest number in the set, or -1.
func (s *Set) First() int {
	for i, w := range s {
		if w != 0 {
			return 64*i + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// List has the set's numbers in ascending order.
func (s *Set) List() []int {
	list := make([]int, 0, s.Len())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			list = append(list, 64*i+bits.TrailingZeros64(w))
		}
	}
	return list
}

// String is the set as the kernel writes lists: "0-3,8".
func (s Set) String() string {
	var b []byte
	for n := s.First(); n >= 0 && n < Limit; n++ {
		if !s.Has(n) {
			continue
		}
		last := n
		for s.Has(last + 1) {
			last++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
		if last > n {
			b = strconv.AppendInt(append(b, '-'), int64(last), 10)
		}
		n = last
	}
	return string(b)
}

// ParseSet reads a list as the kernel writes it (Documentation/admin-guide/cputopology.rst),
// "0-3,8". It may be empty.
func ParseSet(text string) (s Set, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, errFirst := strconv.ParseUint(low, 10, 16)
		last, errLast := strconv.ParseUint(high, 10, 16)
		if errFirst != nil || errLast != nil || last < first || last >= Limit {
			return Set{}, fmt.Errorf("%.40q in a list: numbers below %d such as 0-3,8", part, Limit)
		}
		for n := first; n <= last; n++ {
			s.Add(int(n))
		}
	}
	return s, nil
}
