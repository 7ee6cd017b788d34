package samples

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_700_000_000, 0)

func at(i int) Sample {
	v := None()
	v[Step] = float64(i)
	return Sample{At: start.Add(time.Duration(i) * time.Second), Attempt: i % 2, Values: v}
}

func steps(s Series) (all []int) {
	for _, s := range s.Samples {
		all = append(all, int(s.Values[Step]))
	}
	return all
}

func TestTableKeepsTheNewest(t *testing.T) {
	var table Table
	for i := range 2 * maxSamples {
		table.Add(Subject{"a", 3}, State{PID: i}, at(i))
	}
	all := table.Read(Query{})
	if len(all) != 1 || len(all[0].Samples) != maxSamples || all[0].PID != 2*maxSamples-1 {
		t.Fatalf("%d series", len(all))
	}
	if got := steps(all[0]); got[0] != maxSamples || got[maxSamples-1] != 2*maxSamples-1 || !slices.IsSorted(got) {
		t.Errorf("steps %d to %d", got[0], got[len(got)-1])
	}
	if last, ok := all[0].Last(); !ok || last.Attempt != 1 || all[0].Value(Step) != 2*maxSamples-1 || Known(all[0].Value(GPUPower)) {
		t.Errorf("the last is %+v", last)
	}
}

func TestQuery(t *testing.T) {
	var table Table
	for i := range 10 {
		table.Add(Subject{"a", 1}, State{}, at(i))
		table.Add(Subject{"a", 0}, State{}, at(i))
		table.Add(Subject{"b", 0}, State{}, at(i))
		table.Add(Node, State{}, at(i))
	}
	names := func(q Query) (all []string) {
		for _, s := range table.Read(q) {
			all = append(all, fmt.Sprint(s.Job, s.Rank, " ", steps(s)))
		}
		return all
	}
	if got := names(Query{Job: "a", After: start.Add(7 * time.Second)}); !slices.Equal(got, []string{"-1 [8 9]", "a0 [8 9]", "a1 [8 9]"}) {
		t.Errorf("after: %q", got)
	}
	if got := names(Query{Job: "c", After: start.Add(time.Hour)}); !slices.Equal(got, []string{"-1 [9]"}) {
		t.Errorf("of a job that is not there, and later: %q", got)
	}
	table.Forget("a")
	table.Forget("")
	if got := names(Query{After: start.Add(time.Hour)}); !slices.Equal(got, []string{"-1 [9]", "b0 [9]"}) {
		t.Errorf("after the end of a job: %q", got)
	}
}

// TestTableIsBounded checks that many ranks do not take more memory than few, and that what is read
// was added, in order.
func TestTableIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		added := map[Subject][]int{}
		for i := range rapid.IntRange(1, 60).Draw(t, "rounds") {
			of := Subject{"a", rapid.IntRange(0, 4).Draw(t, "rank")}
			table.Add(of, State{}, at(i))
			added[of] = append(added[of], i)
		}
		for _, s := range table.Read(Query{}) {
			if !slices.Equal(steps(s), added[s.Subject]) {
				t.Fatalf("%v has %v, want %v", s.Subject, steps(s), added[s.Subject])
			}
		}
	})
	var table Table
	for i := range 2 * maxSamples {
		table.Add(Node, State{}, at(i))
	}
	for rank := range 65_535 {
		table.Add(Subject{"a", rank}, State{}, at(rank))
	}
	table.Add(Node, State{}, at(70_000))
	node := table.Read(Query{Job: "none"})[0]
	if n := len(node.Samples); n != minSamples || node.Value(Step) != 70_000 {
		t.Errorf("beside 65,535 ranks a series has %d samples, the last %v", n, node.Value(Step))
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range Columns {
		if seen[c.String()] || c.String() == "" {
			t.Errorf("column %d is named %q", int(c), c)
		}
		seen[c.String()] = true
	}
	if got := Column(99).String(); got != "column_99" {
		t.Error(got)
	}
}

func BenchmarkAdd(b *testing.B) {
	var table Table
	v := at(1)
	for b.Loop() {
		table.Add(Subject{"a", 1}, State{}, v)
	}
}
