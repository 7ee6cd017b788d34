package placement

import (
	"fmt"
	"strconv"
	"strings"
)

// ParsePerNode reads a number of ranks per node: "8" for all nodes, "4,8,2" in the order of node
// ranks, "auto" for [AllGPUs].
func ParsePerNode(s string) ([]int, error) {
	if strings.EqualFold(strings.TrimSpace(s), "auto") {
		return []int{AllGPUs}, nil
	}
	var list []int
	for field := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(field), 10, 64)
		if err != nil || n < 1 || n > maxPerNode {
			return nil, fmt.Errorf("ranks per node %q: %q is not a number from 1 to %d; want a number, a list such as 4,8,2, or auto",
				s, field, maxPerNode)
		}
		list = append(list, int(n))
	}
	return list, nil
}

// ParseStrategy reads the name of a strategy; case does not matter, and '-' is the same as '_'.
func ParseStrategy(s string) (Strategy, error) {
	name := Strategy(strings.ToUpper(strings.ReplaceAll(s, "-", "_")))
	switch name {
	case StrictPack, Pack, Spread, StrictSpread:
		return name, nil
	}
	return "", unknownStrategy(s)
}

func unknownStrategy(s string) error {
	return fmt.Errorf("unknown strategy %q; want %s, %s, %s or %s", s, StrictPack, Pack, Spread, StrictSpread)
}
