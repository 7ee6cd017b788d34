package agent

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

func TestLocalRankInArguments(t *testing.T) {
	args := []string{"prog", "--device=cuda:${local_rank}", "${local_rank}${local_rank}", "$local_rank", "{local_rank}"}
	got := Task{Command: args}.arguments(7, job.World{})
	want := []string{"prog", "--device=cuda:7", "77", "$local_rank", "{local_rank}"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if args[1] != "--device=cuda:${local_rank}" {
		t.Error("the job's own arguments were changed")
	}
}

// TestTemplates has the result of Python's string.Template(x).safe_substitute(local_rank=7) for
// each x.
func TestTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"$$": "$", "$$$": "$$", "$local_rank": "7", "${local_rank}": "7", "$local_ranks": "$local_ranks", "$local_rank.x": "7.x",
		"$${local_rank}": "${local_rank}", "$$local_rank": "$local_rank", "$$${local_rank}": "$7", "$$$${local_rank}": "$${local_rank}",
		"${local_rank}${local_rank}": "77", "${rank}": "${rank}", "$1 ${": "$1 ${", "{local_rank}": "{local_rank}", "$LOCAL_RANK": "$LOCAL_RANK",
	} {
		if got := (Task{Command: []string{"$$", template}, Templates: true}).arguments(7, job.World{}); !slices.Equal(got, []string{"$$", want}) {
			t.Errorf("%s: %q, want %q", template, got[1], want)
		}
	}
}

func TestStdinIsRankZeros(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.jobs["test"]
	s.work.Task.Stdin = true
	start := startOf(0)
	for _, b := range start.Group.Bundles {
		u := newAttempt(s, start)
		u.setUp()
		output, err := s.work.Output.Dir.Rank(u.outputOptions(b))
		must(t, err)
		defer output.Close(t.Context())
		c := u.command(b, output)
		if got := c.Stdin == os.Stdin; got != (b.Rank == 0) {
			t.Errorf("rank %d has standard input: %v", b.Rank, got)
		}
		if !slices.Contains(c.Env, "TORCHELASTIC_ERROR_FILE="+output.ErrorFile()) || !slices.Contains(c.Env, "TORCHELASTIC_RUN_ID=test") {
			t.Errorf("rank %d has %q", b.Rank, c.Env)
		}
	}
}

func TestSpeaker(t *testing.T) {
	w := obeying(t, "exit 0")
	spoke := make(chan Speaker, 2)
	of := w.work.Output.Of
	w.jobs["test"].work.Output.Of = func(s Speaker) logs.RankOptions {
		spoke <- s
		return of(s)
	}
	o := startOf(3)
	o.Group.Bundles = []placement.Bundle{{Rank: 5, LocalRank: 1}}
	w.order(o)
	w.quiet()
	if got, want := <-spoke, (Speaker{Node: "n1", Attempt: 3, Rank: 5, LocalRank: 1, WorldSize: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestUnknownOrdersAreReported(t *testing.T) {
	w := obeying(t, "exit 0")
	var told error
	w.Warn = func(err error) { told = err }
	w.order(job.Wait{})
	if told == nil {
		t.Error("no warning about an invalid order")
	}
	told = nil
	w.execute(wire.Order{Job: "unknown", Do: job.Prepare{}})
	if told == nil || !strings.Contains(told.Error(), "job unknown") {
		t.Errorf("told %v of an order for a job that is not here", told)
	}
}
