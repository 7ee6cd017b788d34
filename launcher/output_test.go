package launcher

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/torchoutput"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestWhatIsShown checks the console when two ranks print a word on each stream, for several world
// sizes and options.
func TestWhatIsShown(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		job      Job
		out, err string
	}{
		"all":        {Job{}, "[r4 n1] o0\n[r5 n1] o1\n", "[r4 n1] e0\n[r5 n1] e1\n"},
		"one rank":   {Job{Output: Output{Ranks: []report.Span{{From: 5, To: 9}}}}, "[r5 n1] o1\n", "[r5 n1] e1\n"},
		"no prefix":  {Job{Output: Output{Prefix: new(bool)}}, "o0\no1\n", "e0\ne1\n"},
		"torchrun's": {Job{Output: Output{Torch: &TorchOutput{}}}, "o0\no1\n", "e0\ne1\n"},
		"redirected": {Job{Output: Output{Torch: &TorchOutput{Redirects: map[int]int{torchoutput.EveryRank: 1}}}}, "", "e0\ne1\n"},
		"redirected for one": {
			Job{Output: Output{Torch: &TorchOutput{Redirects: map[int]int{1: 3}}}}, "o0\n", "e0\n",
		},
		"redirected but for one": {
			Job{Output: Output{Torch: &TorchOutput{Redirects: map[int]int{torchoutput.EveryRank: 3, 1: 0}}}}, "o1\n", "e1\n",
		},
		"tee'd": {Job{Output: Output{Torch: &TorchOutput{Tee: map[int]int{torchoutput.EveryRank: 2}}}}, "o0\no1\n", "[default0]:e0\n[default1]:e1\n"},
		"redirected and tee'd": {
			Job{Output: Output{Torch: &TorchOutput{Redirects: map[int]int{torchoutput.EveryRank: 3}, Tee: map[int]int{1: 1}}}}, "[default1]:o1\n", "",
		},
		"a filter": {Job{Output: Output{Torch: &TorchOutput{LocalRanks: []int{1}, Tee: map[int]int{torchoutput.EveryRank: 1}}}}, "[default1]:o1\n", "e1\n"},
		"a template": {
			Job{Ranks: Ranks{Role: "actor"}, Output: Output{Torch: &TorchOutput{
				Tee: map[int]int{0: 1}, Prefix: "$$${rank}/$local_rank ${role_name}@${hostname} ${odd}|",
			}}},
			"$4/0 actor@" + host + " ${odd}|o0\no1\n", "e0\ne1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out, words bytes.Buffer
			c.job.Ranks.defaults()
			c.job.Output.Stdout, c.job.Output.Stderr = &out, &words
			h := newLocalRun(c.job)
			dir := said(t, h)
			if err := h.Console.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.out || words.String() != c.err {
				t.Errorf("stdout %q, stderr %q; want %q and %q", &out, &words, c.out, c.err)
			}
			for rank := range 2 {
				for name, want := range map[string]string{
					fmt.Sprintf("attempt-2/rank-%d.stdout.log", 4+rank): fmt.Sprintf("o%d\n", rank),
					fmt.Sprintf("attempt_2/%d/stdout.log", rank):        fmt.Sprintf("o%d\n", rank),
					fmt.Sprintf("attempt_2/%d/stderr.log", rank):        fmt.Sprintf("e%d\n", rank),
				} {
					if c.job.Output.Torch == nil && name[7] == '_' {
						continue
					}
					if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
						t.Errorf("%s has %q (%v), want %q", name, got, err, want)
					}
				}
			}
		})
	}
}

// said makes two ranks of a node print a word on each stream, and returns the directory of their
// files.
func said(t *testing.T, l *localRun) string {
	t.Helper()
	dir, err := logs.Access{}.OpenDir(t.TempDir(), l.job.dirName("j"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	for local := range 2 {
		r, err := dir.Rank(l.job.outputOf(l.Console, l.Warn)(agent.Speaker{Node: "n1", Attempt: 2, Rank: 4 + local, LocalRank: local, WorldSize: 8}))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(r.Stdout, "o%d\n", local)
		fmt.Fprintf(r.Stderr, "e%d\n", local)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return dir.Path()
}
