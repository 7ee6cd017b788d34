package hostlist

import (
	"cmp"
	"slices"
)

// Sort puts names into the order that gives the shortest list in [Compress].
func Sort(names []string) { slices.SortFunc(names, Compare) }

// Compare compares what is before the number at the end of a name, and then that number.
func Compare(a, b string) int {
	x, y := newRun(a), newRun(b)
	return cmp.Or(cmp.Compare(x.prefix, y.prefix), cmp.Compare(len(x.first), len(y.first)), cmp.Compare(x.high, y.high))
}
