package job

import (
	"fmt"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// GPUOf is the GPU of a rank as reports name it; nil for a CPU rank.
func GPUOf(gpu *placement.GPU) *report.GPU {
	if gpu == nil {
		return nil
	}
	return &report.GPU{Index: gpu.Index, UUID: gpu.UUID}
}

// Failure describes the end of a rank as a failure. gpu is the rank's GPU, nil for none.
func (ev Exited) Failure(gpu *placement.GPU) report.Failure {
	on := ""
	if gpu != nil {
		on = fmt.Sprintf(" (gpu %d)", gpu.Index)
	}
	return report.Failure{
		Node: ev.Node, Rank: ev.Rank, GPU: GPUOf(gpu), Attempt: ev.Attempt, Exit: ev.Exit, At: ev.At, Lived: ev.Lived, Step: ev.Step,
		Why:  fmt.Sprintf("rank %d on %s%s %v", ev.Rank, ev.Node, on, ev.Exit),
		Tail: ev.Tail, Traceback: ev.Traceback, Kernel: ev.Kernel,
	}
}
