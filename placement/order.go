package placement

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// compare compares two candidates by the order. It returns 0 only for nodes with the same name and
// address.
func (o Order) compare(a, b *candidate) int {
	primary := 0
	switch o.By {
	case ByName:
		primary = natural(a.node.Name, b.node.Name)
	case ByList:
		primary = cmp.Compare(a.place, b.place)
	case ByTopology:
		primary = compareLevels(a.levels, b.levels)
	}
	if primary != 0 {
		return primary
	}
	if d := compareAddr(a.addr, b.addr); d != 0 {
		return d
	}
	return natural(a.node.Name, b.node.Name)
}

// compareAddr sorts IPv4 addresses before IPv6 addresses, and both numerically. Nodes without an
// address come last.
func compareAddr(a, b netip.Addr) int {
	if a.IsValid() != b.IsValid() {
		return -a.Compare(b)
	}
	return a.Compare(b)
}

// levels returns the names in the node's TopologyLabel, from the top down; nil if the node has no
// such label.
func levels(n *Node) []string {
	label := n.Labels[TopologyLabel]
	if label == "" {
		return nil
	}
	return strings.Split(label, ".")
}

// compareLevels compares level by level. A node that has fewer levels comes before the nodes below
// its last level, and nodes without levels come last.
func compareLevels(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(b), len(a))
	}
	return slices.CompareFunc(a, b, natural)
}

// natural compares names in which each run of digits, of any length, counts as a number: n9 comes
// before n10. The zeros in n01 count only if the names are otherwise equal.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		p, q := digits(x), digits(y)
		switch {
		case p > 0 && q > 0:
			if d := compareNumbers(x[:p], y[:q]); d != 0 {
				return d
			}
		case x[0] != y[0]:
			return cmp.Compare(x[0], y[0])
		default:
			p, q = 1, 1
		}
		x, y = x[p:], y[q:]
	}
	if d := cmp.Compare(len(x), len(y)); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if d := cmp.Compare(len(a), len(b)); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// digits returns the length of the run of digits at the start of s.
func digits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}
