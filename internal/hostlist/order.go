package hostlist

import (
	"cmp"
	"slices"
)

// Sort puts names into the order in which [Compress] makes the shortest list of them: by what is before the number at their ends, and by that.
func Sort(names []string) {
	slices.SortFunc(names, func(a, b string) int {
		x, y := newRun(a), newRun(b)
		return cmp.Or(cmp.Compare(x.prefix, y.prefix), cmp.Compare(len(x.first), len(y.first)), cmp.Compare(x.high, y.high))
	})
}
