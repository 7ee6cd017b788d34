// Package hostlist reads and writes Slurm's host lists, such as gpu[001-004,007],login1.
//
// A list is names separated by commas. Brackets in a name stand for each of the numbers and ranges
// in them. A range pads its numbers with zeros to as many digits as its first number has: n[08-10]
// is n08,n09,n10. Expansion keeps the order of the list, and duplicates. All this is as in
// slurm.conf(5) and "scontrol show hostnames", with two differences. Empty names, spaces, n[1-] and
// an open bracket, which Slurm overlooks, are errors here. Text behind the last bracket is allowed
// here, but is an error in Slurm.
package hostlist

import (
	"strconv"
	"strings"
)

// Max bounds the hosts of a list.
const Max = 1 << 20

// maxName bounds a host name in bytes (RFC 1035, section 2.3.4, without the final dot).
const maxName = 253

// Expand returns the names of a list, at least one. Names consist of letters, digits, '.', '_' and
// '-', and have at most 253 bytes (RFC 1035). They do not begin with '-' or '.', which would make
// them options or hidden files.
//
// The error says in one line what is wrong at which byte, counted from 1. It refuses more than
// [Max] hosts before it allocates memory for them.
func Expand(text string) ([]string, error) {
	s := scanner{text: text}
	hosts, err := s.hosts()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, s.count)
	for _, h := range hosts {
		names = h.names(names)
	}
	return names, nil
}

// host is an entry of a list.
type host struct {
	// parts are the text before, between and behind the brackets, with an empty string for each
	// bracket.
	parts  []string
	groups [][]span
	// count is the number of names, or some number above Max if there are more.
	count int
}

// names appends the entry's names. As in Slurm, the last bracket counts fastest, then the first,
// and the last but one slowest (_push_range_list in Slurm's hostlist.c). With up to two brackets,
// this is the order of the numbers.
func (h host) names(list []string) []string {
	wheels := make([][]string, len(h.groups))
	for i, spans := range h.groups {
		for _, s := range spans {
			wheels[i] = s.numbers(wheels[i])
		}
	}
	for n := range h.count {
		for i := range wheels {
			at := (i + len(wheels) - 1) % len(wheels)
			h.parts[2*at+1] = wheels[at][n%len(wheels[at])]
			n /= len(wheels[at])
		}
		list = append(list, strings.Join(h.parts, ""))
	}
	return list
}

// span is the numbers from low to high, padded with zeros to width digits.
type span struct {
	low, high uint64
	width     int
}

// count is how many numbers the span has, or some number above Max if there are more.
func (s span) count() int { return int(min(s.high-s.low, Max)) + 1 }

func (s span) numbers(list []string) []string {
	zeros := strings.Repeat("0", s.width)
	var digits []byte
	for i := range s.high - s.low + 1 { // high may be the largest uint64
		digits = strconv.AppendUint(digits[:0], s.low+i, 10)
		list = append(list, zeros[:max(0, s.width-len(digits))]+string(digits))
	}
	return list
}

// longest is the length of the longest number.
func (s span) longest() int { return max(s.width, len(strconv.FormatUint(s.high, 10))) }
