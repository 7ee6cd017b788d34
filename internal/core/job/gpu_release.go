package job

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// Free returns the node's GPUs after the event, and whether the event changes them.
func (e Freed) Free(gpus []placement.GPU) (after []placement.GPU, changed bool) {
	after = slices.Clone(gpus) // plans point to the old GPUs
	for i := range after {
		if g := &after[i]; g.HeldBy != "" && slices.Contains(e.GPUs, g.Index) {
			g.HeldBy, changed = "", true
		}
	}
	return after, changed
}

// String names the GPUs for people: "n3: gpu0, gpu5 are free now".
func (e Freed) String() string {
	switch n := len(e.GPUs); {
	case n == 1:
		return fmt.Sprintf("%s: gpu%d is free now", e.Node, e.GPUs[0])
	case n > shownGPUs:
		return fmt.Sprintf("%s: %d GPUs are free now", e.Node, n)
	}
	names := make([]string, len(e.GPUs))
	for i, index := range e.GPUs {
		names[i] = fmt.Sprint("gpu", index)
	}
	return fmt.Sprintf("%s: %s are free now", e.Node, strings.Join(names, ", "))
}

// shownGPUs bounds how many GPUs a reason names.
const shownGPUs = 8
