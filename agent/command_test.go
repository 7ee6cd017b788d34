package agent

import (
	"os"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/logs"
)

func TestLocalRankInArguments(t *testing.T) {
	args := []string{"prog", "--device=cuda:${local_rank}", "${local_rank}${local_rank}", "$local_rank", "{local_rank}"}
	got := localRank(args, 7)
	want := []string{"prog", "--device=cuda:7", "77", "$local_rank", "{local_rank}"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if args[1] != "--device=cuda:${local_rank}" {
		t.Error("the job's own arguments were changed")
	}
}

func TestStdinIsRankZeros(t *testing.T) {
	w := obeying(t, "exit 0")
	w.Task.Stdin = true
	start := attempt(0)
	for _, b := range start.Group.Bundles {
		c := w.command(start, b, "/errors")
		if got := c.Stdin == os.Stdin; got != (b.Rank == 0) {
			t.Errorf("rank %d has standard input: %v", b.Rank, got)
		}
		if !slices.Contains(c.Env, "TORCHELASTIC_ERROR_FILE=/errors") || !slices.Contains(c.Env, "TORCHELASTIC_RUN_ID=test") {
			t.Errorf("rank %d has %q", b.Rank, c.Env)
		}
	}
}

func TestWhatIsShown(t *testing.T) {
	dir, err := logs.OpenDir(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	screen := newLines()
	console := logs.NewConsole(screen, screen)
	out := Output{
		Console: console, Dir: dir,
		Shown:  func(rank int) bool { return rank == 1 },
		Prefix: func(worldSize int) bool { return worldSize > 1 },
	}
	for rank, worldSize := range []int{2, 2, 2} {
		say(t, out, rank, worldSize)
	}
	say(t, out, 1, 1)
	if err := console.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := screen.String(), "[r1 n1] hello\nhello\n"; got != want {
		t.Errorf("shown is %q, want %q", got, want)
	}
}

// say has a rank say hello.
func say(t *testing.T, out Output, rank, worldSize int) {
	t.Helper()
	r, err := out.open("n1", 0, rank, worldSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stdout.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	r.Started()
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownOrdersAreToldOf(t *testing.T) {
	w := obeying(t, "exit 0")
	var told error
	w.Warn = func(err error) { told = err }
	w.obey(job.Finish{})
	if told == nil {
		t.Error("nobody heard of an order that makes no sense")
	}
}
