package placement

import (
	"fmt"
	"math"
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

// ParsePerGPU reads which part of a GPU a rank gets. It returns how many ranks share a GPU: 1 for
// "1", 2 for "0.5" or "1/2".
func ParsePerGPU(s string) (int, error) {
	text := strings.TrimSpace(s)
	if part, ok := strings.CutPrefix(text, "1/"); ok {
		if n, err := strconv.ParseUint(part, 10, 64); err == nil && 1 <= n && n <= MaxPerGPU {
			return int(n), nil
		}
		return 0, fmt.Errorf("GPUs per rank %q: want 1 or a part of one, from 1/2 to 1/%d", s, MaxPerGPU)
	}
	share, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(share > 0) || share < 1/(MaxPerGPU+0.5):
		return 0, fmt.Errorf("GPUs per rank %q: want 1 or a part of one, from 1/2 to 1/%d, such as 0.5", s, MaxPerGPU)
	case share > 1:
		return 0, fmt.Errorf("GPUs per rank %q: a rank has one GPU, or a part of one such as 0.5", s)
	}
	n := math.Round(1 / share)
	if math.Abs(n*share-1) > 1e-9 {
		return 0, fmt.Errorf("GPUs per rank %q: a GPU has an equal part for each rank; the nearest is 1/%v", s, n)
	}
	return int(n), nil
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
