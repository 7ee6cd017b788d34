package group

import (
	"math"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestWhatIsInTheWay checks which processes keep a group's turn from beginning, by the GPU memory
// that they hold.
func TestWhatIsInTheWay(t *testing.T) {
	const gib = 1 << 30
	of := func(gpu, job string, rank, pid int, memory float64) report.Series {
		usage := report.Usage{GPUMemory: memory * gib}
		return report.Series{GPU: gpu, Job: job, Rank: rank, PID: pid, Samples: []report.Sample{{Usage: usage}}}
	}
	mine, rank := of("g", "me", 3, 1, 50), of("g", "you", 4, 2, 3)
	stranger, untold := of("g", "", -1, 3, 5), of("g", "", -1, 4, math.NaN())
	for name, test := range map[string]struct {
		used      float64
		processes []report.Series
		whole     int64
		want      []GPUMemory
	}{
		"its own":                {51, []report.Series{mine}, 6 * gib, nil},
		"another rank":           {54, []report.Series{mine, rank}, 0, []GPUMemory{{"n0", "g", 3 * gib, 2, "you", 4}}},
		"a stranger":             {5, []report.Series{stranger}, 0, []GPUMemory{{"n0", "g", 5 * gib, 3, "", -1}}},
		"of an unknown holder":   {7, []report.Series{untold}, 6 * gib, []GPUMemory{{"n0", "g", 7 * gib, 0, "", -1}}},
		"no process is known":    {7, nil, 6 * gib, []GPUMemory{{"n0", "g", 7 * gib, 0, "", -1}}},
		"not much":               {6, nil, 6 * gib, nil},
		"perhaps its own":        {70, []report.Series{untold}, 0, nil},
		"told of one, not of it": {70, []report.Series{mine, untold}, 6 * gib, nil},
	} {
		series := append([]report.Series{of("g", "", -1, 0, test.used)}, test.processes...)
		series = append(series, of("other", "", -1, 0, 70), of("other", "", -1, 9, 70))
		q := MemoryQuery{Job: "me", GPUs: map[string][]string{"n0": {"g"}}, Keep: 2 * gib, Whole: test.whole}
		checked, held := q.judge(launcher.NodeSamples{Node: "n0", Series: series})
		if checked != 1 || !slices.Equal(held, test.want) {
			t.Errorf("%s: %d, %+v, want %+v", name, checked, held, test.want)
		}
	}
}

// TestWhatIsNotKnown: a driver that knows some of the GPUs must know all of them. Without a driver
// there is nothing to check.
func TestWhatIsNotKnown(t *testing.T) {
	q := MemoryQuery{Job: "me", GPUs: map[string][]string{"n0": {"g", "h"}, "n1": {"g"}}}
	for checked, want := range map[int]string{0: "", 2: "cannot tell whether the GPUs of me are free: the driver does not know 1 of them", 3: ""} {
		if err := q.known(checked); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%d: %v, want %q", checked, err, want)
		}
	}
}
