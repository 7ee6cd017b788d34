package hostlist

import (
	"strconv"
	"strings"
)

// Compress writes names as a list that [Expand] turns back into the same names in the same order.
// There must be at least one name, and all names must be valid. Neighbours that differ only in the
// numbers at their ends share brackets, as with "scontrol show hostlist". Slurm can read every
// list.
func Compress(names []string) string {
	all := runs(names)
	var b strings.Builder
	for i, r := range all {
		before := i > 0 && r.shares(all[i-1])
		behind := i+1 < len(all) && r.shares(all[i+1])
		brackets := before || behind || r.first != r.last
		if i > 0 {
			b.WriteByte(',')
		}
		if !before {
			b.WriteString(r.prefix)
		}
		if !before && brackets {
			b.WriteByte('[')
		}
		b.WriteString(r.first)
		if r.first != r.last {
			b.WriteString("-" + r.last)
		}
		if !behind && brackets {
			b.WriteByte(']')
		}
	}
	return b.String()
}

// run is a run of neighbouring names with one prefix and consecutive numbers.
type run struct {
	prefix string
	// first and last are the digits of the numbers; empty for a name without a number, or with a
	// number too large for high.
	first, last string
	high        uint64
}

func runs(names []string) []run {
	var all []run
	for _, name := range names {
		next := newRun(name)
		if n := len(all); n > 0 && all[n-1].shares(next) && all[n-1].leadsTo(next) {
			all[n-1].last, all[n-1].high = next.last, next.high
			continue
		}
		all = append(all, next)
	}
	return all
}

func newRun(name string) run {
	prefix := strings.TrimRight(name, "0123456789")
	digits := name[len(prefix):]
	high, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return run{prefix: name}
	}
	return run{prefix, digits, digits, high}
}

// shares reports whether r and other can be in the same brackets.
func (r run) shares(other run) bool {
	return r.prefix == other.prefix && r.first != "" && other.first != ""
}

// leadsTo reports whether next can extend the range r. Its number must be r's last number plus 1,
// with as many leading zeros as a range that begins at r.first would give it.
func (r run) leadsTo(next run) bool {
	padded := len(next.first) == len(r.first) || len(next.first) > len(r.first) && next.first[0] != '0'
	return padded && next.high > r.high && next.high-r.high == 1
}
