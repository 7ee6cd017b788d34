package slurm

import (
	"testing"
)

func TestFacts(t *testing.T) {
	for _, c := range []struct {
		facts facts
		gpus  bool
		held  int
	}{
		{"JobId=1 JobState=RUNNING TRES=cpu=8,mem=1G,node=2 ReqTRES=cpu=8,gres/gpu=8", false, 0},
		{"JobId=1 TRES=cpu=8,node=2,gres/gpu=8 NtasksPerTRES=0", true, 0},
		{"JobId=1 TresPerNode=gres:gpu:4 JOB_GRES=gpu:8", true, 0},
		{"JobId=1 TresPerTask=gres/gpu:1 JOB_GRES=gpu:a100:8,nvme:1,gpu:2", true, 10},
		{"JobId=1 NtasksPerTRES=2 JOB_GRES=gpu:8", true, 8},
		{"JobId=1 TresPerNode=gres/gpumem:4 JOB_GRES=(null)", false, 0},
		{"JobId=1 NtasksPerTRES=(null) JOB_GRES=gpu:8", true, 0},
		{"", false, 0},
	} {
		if gpus, held := c.facts.haveGPUs(), c.facts.gpusPerTask(); gpus != c.gpus || held != c.held {
			t.Errorf("%s: GPUs %v, %d for the tasks; want %v, %d", c.facts, gpus, held, c.gpus, c.held)
		}
	}
}
