package job

import (
	"slices"

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

// FreeGPUs counts the GPUs of a node that nothing holds.
func FreeGPUs(n placement.Node) (free int) {
	for _, g := range n.GPUs {
		if g.HeldBy == "" {
			free++
		}
	}
	return free
}

// shownGPUs bounds how many GPUs a reason names.
const shownGPUs = 8
