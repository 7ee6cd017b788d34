package console_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// TestLive shows prompts and progress bars of several ranks at the bottom of a terminal, below
// whole lines.
func TestLive(t *testing.T) {
	t.Setenv("TERM", "xterm")
	screen, shows := console.OpenTerminal(t, 5)
	c := console.New(screen, screen)
	d := openDir(t, t.TempDir())
	var ranks []*logs.Rank
	for i := range 5 {
		r := newRank(t, d, logs.RankOptions{Rank: i, Console: c, Prefix: fmt.Sprintf("[%d] ", i)})
		ranks = append(ranks, r)
	}
	write := func(rank int, text string) {
		t.Helper()
		if _, err := ranks[rank].Stdout.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(0, "epoch 1\n")
	shows("[0] epoch 1", "")
	write(0, " 10%")
	shows("[0] epoch 1", "[0]  10%")
	write(1, "name? ")
	shows("[0] epoch 1", "[0]  10%", "[1] name? ")
	write(0, "\r 20%")
	shows("[0] epoch 1", "[0]  20%", "[1] name? ")
	write(2, "whole\n")
	shows("[0] epoch 1", "[2] whole", "[0]  20%", "[1] name? ")
	c.Say("words")
	shows("[0] epoch 1", "[2] whole", "golaunch: words", "[0]  20%", "[1] name? ")
	for i := 2; i < 5; i++ {
		write(i, "loads")
	}
	shows("[0] epoch 1", "[2] whole", "golaunch: words", "[0]  20%", "[1] name? ", "[2] loads", "... and 2 more")
	write(0, "\r100%\n")
	shows("[0] epoch 1", "[2] whole", "golaunch: words", "[0] 100%", "[1] name? ", "[2] loads", "[3] loads", "... and 1 more")
	write(1, "\x1b[2Ahello\n")
	shows("[0] epoch 1", "[2] whole", "golaunch: words", "[0] 100%", "[1] name? ^[[2Ahello", "[2] loads", "[3] loads", "[4] loads")
	for _, r := range ranks {
		if err := r.Close(pipetest.Soon(t)); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	shows("[0] epoch 1", "[2] whole", "golaunch: words", "[0] 100%", "[1] name? ^[[2Ahello", "[2] loads", "[3] loads", "[4] loads", "")
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "epoch 1\n 10%\r 20%\r100%\n" {
		t.Errorf("the file has %q", got)
	}
}

// TestADumbTerminal has no live area: unfinished lines are shown as on a pipe.
func TestADumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	screen, shows := console.OpenTerminal(t, 24)
	c := console.New(screen, screen)
	r := newRank(t, openDir(t, t.TempDir()), logs.RankOptions{Console: c, Prefix: "[0] "})
	cmd := exec.Command("sh", "-c", `printf 'name? '; read name`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Started()
	shows("[0] name? ", "")
	in.Close()
	_ = cmd.Wait() // the program read nothing
	if err := r.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestAStandingLine: an unfinished line that does not change, such as a prompt, is shown, and not
// repeated later.
func TestAStandingLine(t *testing.T) {
	r, w := pipetest.Pipe(t)
	c := console.New(w, w)
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, logs.RankOptions{Console: c, Prefix: "[0] "})
	answers, question, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer question.Close()
	cmd := exec.Command("sh", "-c", `printf '10%%\r20%%'; read x; printf '\r30%%\r40%%\nname? '; read x; printf '\n'; printf 'more? '; read x; echo " $x"`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = answers, rank.Stdout, rank.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers.Close()
	rank.Started()
	shown := bufio.NewReader(r)
	for _, want := range []string{"20%", "40%", "name? ", "more? ", " yes"} {
		if got, err := shown.ReadString('\n'); err != nil || got != "[0] "+want+"\n" {
			t.Fatalf("%q, error %v, want %q", got, err, want)
		}
		if want != "40%" {
			fmt.Fprintln(question, "yes")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(rank.Flush(pipetest.Soon(t)), rank.Close(pipetest.Soon(t)), c.Close()); err != nil {
		t.Error(err)
	}
	if got, want := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), "10%\r20%\r30%\r40%\nname? \nmore?  yes\n"; got != want {
		t.Errorf("the file has %q", got)
	}
}
