package sampling

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/launcher/report"
)

var start = time.Unix(1_700_000_000, 0)

func at(i int) report.Sample {
	v := report.Unmeasured()
	v.Step = float64(i)
	return report.Sample{At: start.Add(time.Duration(i) * time.Second), Attempt: i % 2, Usage: v}
}

func steps(s report.Series) (all []int) {
	for _, s := range s.Samples {
		all = append(all, int(s.Step))
	}
	return all
}

func TestTableKeepsTheNewest(t *testing.T) {
	var table table
	for i := range 2 * maxSamples {
		table.add(report.Series{Job: "a", Rank: 3, PID: i}, at(i))
	}
	all := table.read("", time.Time{})
	if len(all) != 1 || len(all[0].Samples) != maxSamples || all[0].PID != 2*maxSamples-1 {
		t.Fatalf("%d series", len(all))
	}
	if got := steps(all[0]); got[0] != maxSamples || got[maxSamples-1] != 2*maxSamples-1 || !slices.IsSorted(got) {
		t.Errorf("steps %d to %d", got[0], got[len(got)-1])
	}
	if last := all[0].Last(); last.Attempt != 1 || last.Step != 2*maxSamples-1 || !math.IsNaN(last.GPUPower) {
		t.Errorf("the last is %+v", last)
	}
}

func TestRead(t *testing.T) {
	var table table
	for i := range 10 {
		table.add(report.Series{Job: "a", Rank: 1}, at(i))
		table.add(report.Series{Job: "a", Rank: 0}, at(i))
		table.add(report.Series{Job: "b", Rank: 0}, at(i))
		table.add(report.Series{Rank: -1}, at(i))
	}
	names := func(job string, after time.Duration) (all []string) {
		for _, s := range table.read(job, start.Add(after)) {
			all = append(all, fmt.Sprint(s.Job, s.Rank, " ", steps(s)))
		}
		return all
	}
	if got := names("a", 7*time.Second); !slices.Equal(got, []string{"-1 [8 9]", "a0 [8 9]", "a1 [8 9]"}) {
		t.Errorf("after: %q", got)
	}
	if got := names("c", time.Hour); !slices.Equal(got, []string{"-1 [9]"}) {
		t.Errorf("of a job that is not there, and later: %q", got)
	}
	table.forget("a")
	table.forget("")
	if got := names("", time.Hour); !slices.Equal(got, []string{"-1 [9]", "b0 [9]"}) {
		t.Errorf("after the end of a job: %q", got)
	}
}

// TestTableIsBounded checks that many ranks do not take more memory than few. It also checks that
// reads return the added samples in order.
func TestTableIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table table
		added := map[int][]int{}
		for i := range rapid.IntRange(1, 60).Draw(t, "rounds") {
			rank := rapid.IntRange(0, 4).Draw(t, "rank")
			table.add(report.Series{Job: "a", Rank: rank}, at(i))
			added[rank] = append(added[rank], i)
		}
		for _, s := range table.read("", time.Time{}) {
			if !slices.Equal(steps(s), added[s.Rank]) {
				t.Fatalf("rank %d has %v, want %v", s.Rank, steps(s), added[s.Rank])
			}
		}
	})
	var table table
	for i := range 2 * maxSamples {
		table.add(report.Series{Rank: -1}, at(i))
	}
	for rank := range 65_535 {
		table.add(report.Series{Job: "a", Rank: rank}, at(rank))
	}
	table.add(report.Series{Rank: -1}, at(70_000))
	node := table.read("none", time.Time{})[0]
	if n := len(node.Samples); n != minSamples || node.Last().Step != 70_000 {
		t.Errorf("beside 65,535 ranks a series has %d samples, the last %v", n, node.Last().Step)
	}
}

func BenchmarkAdd(b *testing.B) {
	var table table
	v := at(1)
	for b.Loop() {
		table.add(report.Series{Job: "a", Rank: 1}, v)
	}
}
