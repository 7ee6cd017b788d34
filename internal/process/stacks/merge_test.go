package stacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/process/fold"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

const site = "/nfs/env/lib/python3.12/site-packages/"

// job is eight ranks that train. Rank 3 loads data, rank 5 spins, rank 6 has ended, and rank 7 does
// not run Python.
func job() (samples []Sample) {
	outer := []Frame{{"<module>", "/home/a/run/train.py", 90}, {"train", "/home/a/run/train.py", 40}}
	watch := Thread{TID: 2, Name: "python3", State: "S", Frames: []Frame{
		{"Thread._bootstrap", "/usr/lib/python3.12/threading.py", 1}, {"watch", site + "torch/watch.py", 12},
	}}
	for rank := range 8 {
		inner := []Frame{{"step", "/home/a/run/train.py", 20 + rank}, {"all_reduce", site + "torch/distributed.py", 7}}
		main := Thread{TID: 1, Main: true, State: "S", Call: "futex", Wait: "futex_do_wait", Frames: slices.Concat(outer, inner)}
		switch rank {
		case 3:
			main.Frames = slices.Concat(outer, []Frame{{"next\x1b[31m", "/local/3/lib/python3.12/site-packages/torch/data.py", 88}})
		case 5:
			main.State, main.GIL, main.Moves = "R", true, true
			main.Call, main.Wait = "", ""
		case 6:
			samples = append(samples, Sample{Rank: 6, PID: 6, Missing: errGone.Error()})
			continue
		case 7:
			samples = append(samples, Sample{Rank: 7, PID: 7, Name: "sh", Role: "sh", Threads: []Thread{{Main: true, State: "S", Call: "wait"}}})
			continue
		}
		samples = append(samples, Sample{Rank: rank, PID: rank, Python: "3.12", Threads: []Thread{main, watch, watch}})
	}
	slices.Reverse(samples)
	return samples
}

func TestMerge(t *testing.T) {
	var out strings.Builder
	for _, o := range []MergeOptions{{}, {Lines: true}, {Waits: true}} {
		tree := Merge(job(), o)
		if err := tree.Text(&out, 60); err != nil {
			t.Fatal(err)
		}
		out.WriteString("--\n")
	}
	text, err := jsonout.Marshal(Merge(job(), MergeOptions{}))
	var indented bytes.Buffer
	if err := errors.Join(err, json.Indent(&indented, text, "", "  ")); err != nil {
		t.Fatal(err)
	}
	out.WriteString(indented.String() + "\n")
	want, err := os.ReadFile("testdata/merge.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the tree is:\n%s", &out)
	}
}

// sample returns a random sample.
func sample() *rapid.Generator[Sample] {
	return rapid.Custom(func(t *rapid.T) Sample {
		function := rapid.SampledFrom([]string{"f", "g", "h\x1b]0;x\a", "\u202e", strings.Repeat("長い", 100), "..."})
		frame := rapid.Custom(func(t *rapid.T) Frame {
			file := rapid.SampledFrom([]string{"", "a.py", "/x/y/b.py"}).Draw(t, "file")
			return Frame{function.Draw(t, "function"), file, rapid.IntRange(0, 3).Draw(t, "line")}
		})
		thread := rapid.Custom(func(t *rapid.T) Thread {
			return Thread{
				TID: rapid.IntRange(0, 9).Draw(t, "tid"), Main: rapid.Bool().Draw(t, "main"), Name: function.Draw(t, "name"),
				State: rapid.SampledFrom([]string{"", "R", "S"}).Draw(t, "state"), GIL: rapid.Bool().Draw(t, "gil"),
				Moves: rapid.Bool().Draw(t, "moves"), Frames: rapid.SliceOfN(frame, 0, 6).Draw(t, "frames"),
			}
		})
		return Sample{
			PID: rapid.IntRange(1, 99).Draw(t, "pid"), Rank: rapid.IntRange(0, 40).Draw(t, "rank"),
			Role:    rapid.SampledFrom([]string{"", "child"}).Draw(t, "role"),
			Threads: rapid.SliceOfN(thread, 0, 4).Draw(t, "threads"), Missing: rapid.SampledFrom([]string{"", "gone\n"}).Draw(t, "missing"),
		}
	})
}

// TestAnyMerge checks that every thread is counted once on each level of its stack, that the order
// of samples does not matter, and that no line is too wide or controls a terminal.
func TestAnyMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(sample(), 0, 12).Draw(t, "samples")
		o := MergeOptions{Lines: rapid.Bool().Draw(t, "lines"), Waits: rapid.Bool().Draw(t, "waits")}
		tree := Merge(samples, o)
		threads, frames, counted, nodes := 0, 0, 0, 0
		for _, s := range samples {
			threads += len(s.Threads)
			for _, th := range s.Threads {
				frames += len(th.Frames)
			}
		}
		var visit func(n *Node, ranks fold.Ranks)
		visit = func(n *Node, ranks fold.Ranks) {
			if n.Threads < n.Ranks.Len() || n.Ranks.Len() == 0 || !within(n.Ranks, ranks) {
				t.Fatalf("a node of ranks %v, below %v, has %d threads", n.Ranks, ranks, n.Threads)
			}
			if n.Wait == "" {
				nodes += n.Threads
			}
			if !slices.IsSortedFunc(n.Nodes, func(a, b *Node) int { return compareSets(a.Ranks, b.Ranks) }) {
				t.Fatalf("the nodes below %v are not in order", n.Frame)
			}
			for _, c := range n.Nodes {
				visit(c, n.Ranks)
			}
		}
		for _, g := range tree.Groups {
			for _, n := range g.Nodes {
				visit(n, g.Ranks)
			}
			counted += g.Ranks.Len()
		}
		if nodes != frames || counted > threads {
			t.Fatalf("%d frames of %d threads are %d nodes of %d ranks", frames, threads, nodes, counted)
		}
		width := rapid.IntRange(0, 200).Draw(t, "width")
		text := render(t, tree, width)
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > max(width, narrowest) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q is no line of width %d", line, width)
			}
		}
		if other := render(t, Merge(rapid.Permutation(samples).Draw(t, "order"), o), width); other != text {
			t.Fatalf("in another order it is\n%s, not\n%s", other, text)
		}
	})
}

func render(t *rapid.T, tree Tree, width int) string {
	var out strings.Builder
	if err := tree.Text(&out, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func within(a, b fold.Ranks) bool {
	in := make(map[int]bool)
	for _, r := range b {
		for n := r.First; n <= r.Last; n++ {
			in[n] = true
		}
	}
	for _, r := range a {
		for n := r.First; n <= r.Last; n++ {
			if !in[n] {
				return false
			}
		}
	}
	return true
}

func TestLabel(t *testing.T) {
	set := func(spans ...[2]int) (s fold.Ranks) {
		for _, span := range spans {
			s = append(s, fold.Range{First: span[0], Last: span[1]})
		}
		return s
	}
	var scattered fold.Ranks
	for rank := range 100 {
		scattered = scattered.With(3 * rank)
	}
	for _, c := range []struct {
		set  fold.Ranks
		most int
		want string
	}{
		{nil, 40, "no rank"},
		{set([2]int{4, 4}), 40, "r4"},
		{set([2]int{0, 511}), 40, "r0-511"},
		{set([2]int{0, 36}, [2]int{38, 511}), 40, "r0-511 -r37"},
		{set([2]int{0, 1}, [2]int{3, 4}), 40, "r0-1,3-4"},
		{set([2]int{0, 1}, [2]int{500, 511}), 40, "r0-1,500-511"},
		{set([2]int{0, 99}, [2]int{101, 149}, [2]int{151, 511}), 40, "r0-511 -r100,150"},
		{scattered, 40, "r0,3,6,9,12,15,18,21,24,27 and 90 more"},
		{scattered, 3, "100 ranks"},
	} {
		if got := label(c.set, c.most); got != c.want {
			t.Errorf("%v in %d is %q, not %q", c.set, c.most, got, c.want)
		}
	}
}

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestFull(t *testing.T) {
	if err := Merge(job(), MergeOptions{}).Text(full{}, 80); !errors.Is(err, errFull) {
		t.Errorf("writing fails with %v", err)
	}
}

func BenchmarkMerge(b *testing.B) {
	var samples []Sample
	for rank := range 16384 {
		s := job()[7-rank%5]
		s.Rank = rank
		samples = append(samples, s)
	}
	for b.Loop() {
		Merge(samples, MergeOptions{})
	}
}
