// Package hostlist reads and writes Slurm's host lists, such as gpu[001-004,007],login1.
//
// A list is names with commas between them. Brackets in a name stand for each of the numbers and ranges in them. A range has
// zeros in front of numbers with fewer digits than its first: n[08-10] is n08,n09,n10. The order is that of the list, and a name
// that is in it twice counts twice. All this is as in slurm.conf(5) and "scontrol show hostnames", but for what Slurm overlooks
// (empty names, spaces, n[1-], an open bracket), an error here, and for text behind the last bracket, an error there.
package hostlist

import (
	"strconv"
	"strings"
)

// Max is the number of hosts that a list can have.
const Max = 1 << 20

// maxName is how long a host name can be, in bytes (RFC 1035, section 2.3.4, without the dot at the end).
const maxName = 253

// Expand returns the names of a list, of which there is at least one. Names are of letters, digits, '.', '_' and '-', have at
// most 253 bytes (RFC 1035), and do not begin with '-' or '.', as options and hidden files do.
//
// The error says in one line what is wrong and at which byte, counted from 1. More than [Max] hosts are an error before any
// memory is spent on them.
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

// host is one entry of a list.
type host struct {
	// parts are the text before, between and behind the brackets, with an empty string in the place of each bracket.
	parts []string
	// groups are the brackets.
	groups [][]span
	// count is the number of names, or any number above Max.
	count int
}

// names adds the entry's names to a list. Like Slurm's, the last bracket counts fastest, then the first, and the last but one
// slowest (_push_range_list in Slurm's hostlist.c); with up to two brackets that is the order of the numbers.
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

// span is the numbers from low to high, with zeros in front of those of fewer than width digits.
type span struct {
	low, high uint64
	width     int
}

// count is how many numbers these are, or any number above Max.
func (s span) count() int { return int(min(s.high-s.low, Max)) + 1 }

func (s span) numbers(list []string) []string {
	zeros := strings.Repeat("0", s.width)
	var digits []byte
	for i := range s.high - s.low + 1 { // high may be the largest number there is
		digits = strconv.AppendUint(digits[:0], s.low+i, 10)
		list = append(list, zeros[:max(0, s.width-len(digits))]+string(digits))
	}
	return list
}

// longest is the length of the longest number.
func (s span) longest() int { return max(s.width, len(strconv.FormatUint(s.high, 10))) }
