package procfs

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestEpoch(t *testing.T) {
	const limit = 10_000
	for name, test := range map[string]struct {
		was, is  Epoch
		old, new []int
		untold   bool
	}{
		"some":      {was: Epoch{Last: 5000, Forks: 1}, is: Epoch{Last: 5100, Forks: 90}, old: []int{1, 5000, 5101}, new: []int{5001, 5100}},
		"none":      {was: Epoch{Last: 5000, Forks: 1}, is: Epoch{Last: 5000, Forks: 1}, old: []int{1, 4999, 5000, 5001}},
		"begun new": {was: Epoch{Last: 9990, Forks: 1}, is: Epoch{Last: 400, Forks: 100}, old: []int{401, 9990}, new: []int{9991, 301, 400}},
		// Numbers that are in use are skipped.
		"passed over": {was: Epoch{Last: 1000, Forks: 1, Threads: 5000}, is: Epoch{Last: 6000, Forks: 2}, old: []int{1000}, new: []int{1001}},
		"come round":  {was: Epoch{Last: 5000, Forks: 1}, is: Epoch{Last: 5100, Forks: 9900}, untold: true},
		"unexplained": {was: Epoch{Last: 1000, Forks: 1}, is: Epoch{Last: 6000, Forks: 2}, untold: true},
		"unknown":     {is: Epoch{Last: 6000, Forks: 2}, untold: true},
	} {
		younger := test.was.younger(test.is, limit)
		if (younger == nil) != test.untold {
			t.Errorf("%s: younger is known: %v", name, younger != nil)
		}
		for _, pid := range test.old {
			if younger(pid) {
				t.Errorf("%s: %d counts as younger", name, pid)
			}
		}
		for _, pid := range test.new {
			if !younger(pid) {
				t.Errorf("%s: %d counts as older", name, pid)
			}
		}
	}
}

// TestEpochOfThisMachine distinguishes older processes from newer ones.
func TestEpochOfThisMachine(t *testing.T) {
	sleep := func() int {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd.Process.Pid
	}
	before := sleep()
	e := NewEpoch()
	if e.Last == 0 {
		suite.Missing(t, "this kernel does not say which number it has handed out last")
	}
	after := sleep()
	pids, err := Processes(e, []int{after})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(pids, after) || slices.Contains(pids, before) {
		t.Errorf("processes since %+v are %v: %d is older, %d is younger", e, pids, before, after)
	}
	if pids, err = Processes(e, []int{before, after}); err != nil || !slices.Contains(pids, before) {
		t.Errorf("%v, %v: %d, which counts as younger, is left out", pids, err, before)
	}
	if st, ok := ReadStat(after); !ok || e.Older(st) {
		t.Errorf("%+v counts as older than %v", st, e.At)
	}
	if st, ok := ReadStat(1); !ok || !e.Older(st) {
		t.Errorf("%+v counts as younger than %v", st, e.At)
	}
}
