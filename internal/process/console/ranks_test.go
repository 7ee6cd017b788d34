package console_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
)

// TestLinesAreWhole has eight ranks write to both streams, which are one pipe. Every line is whole,
// in its rank's order.
func TestLinesAreWhole(t *testing.T) {
	const ranks, lines = 8, 20000
	r, w := console.Pipe(t)
	c := console.Patient(console.New(w, w))
	shown := console.Collect(t, r, w)
	d := openDir(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range ranks {
		rank := newRank(t, d, logs.RankOptions{Rank: i, Console: c, Prefix: fmt.Sprintf("[n1 r%02d] ", i)})
		wg.Go(func() { run(t, rank, `seq 1 $1 & seq -f e%.0f 1 $1 >&2; wait`, fmt.Sprint(lines)) })
	}
	wg.Wait()
	c.Say("done\nwith %d", ranks)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	text, own, _ := strings.Cut(shown(), "golaunch: ")
	if own != "done\ngolaunch: with 8\n" {
		t.Errorf("last words %q", own)
	}
	whole := regexp.MustCompile(`^(\[n1 r\d\d\] e?)(\d+)\n$`)
	for line := range strings.Lines(text) {
		m := whole.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("torn line %q", line)
		}
		if next[m[1]]++; fmt.Sprint(next[m[1]]) != m[2] {
			t.Fatalf("line %q, want number %d", line, next[m[1]])
		}
	}
	for stream, n := range next {
		if n != lines {
			t.Errorf("%s: %d lines", stream, n)
		}
	}
	if len(next) != 2*ranks {
		t.Errorf("%d streams", len(next))
	}
}

// TestStuckPipe: a rank goes on after a second without a reader, and once there is one, the lost
// lines are reported.
func TestStuckPipe(t *testing.T) {
	r, w := console.Pipe(t)
	c := console.New(w, w)
	d := openDir(t, t.TempDir())
	const total = 800000
	began := time.Now()
	run(t, newRank(t, d, logs.RankOptions{Console: c}), `seq 100000 899999`)
	if took := time.Since(began); took < console.Patience {
		t.Errorf("lines were lost after %v", took)
	}
	if got := strings.Count(readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), "\n"); got != total {
		t.Errorf("%d lines in the file", got)
	}
	shown := console.Collect(t, r, w)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	n, lost := 0, 0
	for line := range strings.Lines(shown()) {
		if len(line) == len("100000\n") {
			n++
		} else if k, err := fmt.Sscanf(line, "golaunch: stderr was not read for a while: lines not shown: %d;", &lost); k != 1 {
			t.Errorf("line %q: %v", line, err)
		}
	}
	if n+lost != total || lost == 0 {
		t.Errorf("%d lines shown and %d lost, of %d", n, lost, total)
	}
}

// TestEachLineIsShownOrCounted: without a reader, every line is either in the pipe or counted as
// lost.
func TestEachLineIsShownOrCounted(t *testing.T) {
	r, w := console.Pipe(t)
	c := console.New(w, console.Writer(nil))
	const total = 100_000
	run(t, newRank(t, openDir(t, t.TempDir()), logs.RankOptions{Console: c}), fmt.Sprint("seq 1 ", total))
	err := c.Close()
	held, sizeErr := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	text := make([]byte, held)
	if _, readErr := io.ReadFull(r, text); sizeErr != nil || readErr != nil {
		t.Fatal(sizeErr, readErr)
	}
	want := fmt.Sprintf("its reader does not read (lines not shown: %d;", total-console.CountLines(text))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d bytes are in the pipe, and the error is %v; want %q", held, err, want)
	}
}

func TestReaderGone(t *testing.T) {
	r, w := console.Pipe(t)
	r.Close()
	var words bytes.Buffer
	c := console.New(w, &words)
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, logs.RankOptions{Console: c}), `seq 1 1000000`)
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); !strings.HasSuffix(got, "\n1000000\n") {
		t.Errorf("file of %d bytes", len(got))
	}
	if err := c.Close(); !errors.Is(err, unix.EPIPE) || !strings.Contains(err.Error(), "lines not shown: 1000000;") {
		t.Errorf("error %v", err)
	}
	if want := "golaunch: stdout: broken pipe: nothing more is shown there; the log files have it\n"; words.String() != want {
		t.Errorf("words %q", words.String())
	}
}

// TestARankAlone: the output of a single rank passes unchanged and at once; messages start on a new
// line.
func TestARankAlone(t *testing.T) {
	r, w := console.Pipe(t)
	c := console.New(w, w)
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, logs.RankOptions{Console: c, Alone: true})
	long := strings.Repeat("x", 200_000)
	cmd := start(t, rank, `printf '\r 50%%\033[2J'; kill -STOP $$; printf '\r100%%'; kill -STOP $$; printf ' done\n'; head -c 200000 /dev/zero | tr '\0' x; printf end`)
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("shown %.100q, %v, want %.100q", got, err, want)
		}
	}
	goOn := func() {
		t.Helper()
		var status syscall.WaitStatus // the script stops itself after it has written
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatal(status, err)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	expect("\r 50%\x1b[2J")
	c.Say("word")
	expect("\ngolaunch: word\n")
	goOn()
	expect("\r100%")
	goOn()
	expect(" done\n" + long + "end")
	if err := errors.Join(cmd.Wait(), rank.Close(console.Soon(t))); err != nil {
		t.Error(err)
	}
	c.Say("more")
	expect("\ngolaunch: more\n")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "\r 50%\x1b[2J\r100% done\n"+long+"end" {
		t.Errorf("the file has %d bytes: %.100q", len(got), got)
	}
}

// TestFoldingOfLiveRanks shows a line of all ranks at once, and a line of one rank soon, without
// more output.
func TestFoldingOfLiveRanks(t *testing.T) {
	dir, err := logs.OpenDir(t.TempDir(), "job")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, w := io.Pipe()
	c := console.New(w, io.Discard)
	c.Fold(1)
	c.FoldWithin(time.Second) // for a rank that is late on a busy machine
	var ranks []*logs.Rank
	for i := range 3 {
		rank, err := dir.Rank(logs.RankOptions{Node: "n1", Rank: i, Console: c, Prefix: fmt.Sprintf("[r%d n1] ", i)})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, rank)
	}
	read := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != want {
			t.Fatalf("%q, %v; want %q", buf, err, want)
		}
	}
	for _, rank := range ranks {
		fmt.Fprintln(rank.Stdout, "all say so")
	}
	read("[r0-2] all say so\n")
	fmt.Fprintln(ranks[1].Stdout, "one does")
	read("[r1] one does\n")
	for _, rank := range ranks {
		if err := rank.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestViewerShowsWhatWasLive: what a viewer shows is what was shown live, however files are cut
// into pieces.
func TestViewerShowsWhatWasLive(t *testing.T) {
	script := `seq -f 'a line of text %g' 1 300; head -c 150000 /dev/zero | tr '\0' x; printf '\n\nafter\ntorn'; echo err >&2`
	base := t.TempDir()
	d := openDir(t, base)
	var live [4]string
	for i := range live {
		r, w := console.Pipe(t)
		c := console.Patient(console.New(w, w))
		shown := console.Collect(t, r, w)
		run(t, newRank(t, d, logs.RankOptions{Rank: i, Console: c, Prefix: prefixOf(i)}), script)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		live[i] = shown()
	}
	var all []logs.Chunk
	reader := d.Read(logs.Filter{Attempt: logs.AllAttempts}, nil)
	for {
		c, err := reader.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for data := bytes.Clone(c.Data); len(data) > 0; {
			n := min(1+rand.IntN(5000), len(data))
			all = append(all, logs.Chunk{File: c.File, Offset: c.Offset, Data: data[:n]})
			c.Offset, data = c.Offset+int64(n), data[n:]
		}
	}
	// Files are mixed at random, each in its order.
	slots := make([]logs.File, len(all))
	byFile := map[logs.File][]logs.Chunk{}
	for i, c := range all {
		slots[i], byFile[c.File] = c.File, append(byFile[c.File], c)
	}
	rand.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	r, w := console.Pipe(t)
	c := console.New(w, w)
	shown := console.Collect(t, r, w)
	v := console.NewViewer(c, prefixOf)
	ctx := console.Soon(t)
	for _, f := range slots {
		v.Add(ctx, console.Source(f), byFile[f][0].Data)
		byFile[f] = byFile[f][1:]
	}
	if lines, _ := v.Held(); lines != len(live) {
		t.Errorf("%d lines are held", lines)
	}
	v.Close(console.Soon(t))
	if lines, bytes := v.Held(); lines > 0 || bytes > 0 {
		t.Errorf("%d bytes of %d lines are held", bytes, lines)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(shown()) {
		rank, _, _ := strings.Cut(line, " ")
		got[rank] = append(got[rank], line)
	}
	for i, text := range live {
		want, lines := slices.Collect(strings.Lines(text)), got[fmt.Sprintf("[r%d]", i)]
		// The stdout and stderr of a rank may interleave differently.
		slices.Sort(want)
		if slices.Sort(lines); !slices.Equal(lines, want) {
			t.Errorf("rank %d: %d lines, want %d", i, len(lines), len(want))
		}
	}
}

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
		if err := r.Close(console.Soon(t)); err != nil {
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
	_ = cmd.Wait() // it read nothing
	if err := r.Close(console.Soon(t)); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestAStandingLine: an unfinished line that does not change, such as a prompt, is shown, and not
// repeated later.
func TestAStandingLine(t *testing.T) {
	r, w := console.Pipe(t)
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
	if err := errors.Join(rank.Flush(console.Soon(t)), rank.Close(console.Soon(t)), c.Close()); err != nil {
		t.Error(err)
	}
	if got, want := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), "10%\r20%\r30%\r40%\nname? \nmore?  yes\n"; got != want {
		t.Errorf("the file has %q", got)
	}
}

// TestFlushEndsWithContext: a context bounds Flush even if the console holds the rank back.
func TestFlushEndsWithContext(t *testing.T) {
	block := make(chan struct{})
	var words bytes.Buffer
	c := console.Patient(console.New(console.Writer(func(b []byte) (int, error) { <-block; return len(b), nil }), &words))
	d := openDir(t, t.TempDir())
	r := newRank(t, d, logs.RankOptions{Console: c})
	c.Fill()
	began := time.Now()
	if err := start(t, r, `echo held up`).Wait(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Flush(ctx); err == nil || !strings.Contains(err.Error(), "rank 0 on n1") {
		t.Errorf("flush: %v", err)
	}
	if err := r.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took >= time.Minute {
		t.Errorf("close waited for the console, %v", took)
	}
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "held up\n" {
		t.Errorf("file %q", got)
	}
	close(block)
	if err := c.Close(); err != nil || !strings.Contains(words.String(), "stdout was not read for a while: lines not shown: 1;") {
		t.Errorf("console %q, error %v", words.String(), err)
	}
}

func prefixOf(rank int) string { return fmt.Sprintf("[r%d] ", rank) }

func openDir(t *testing.T, base string) *logs.Dir {
	t.Helper()
	d, err := logs.OpenDir(base, "job1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newRank(t *testing.T, d *logs.Dir, opts logs.RankOptions) *logs.Rank {
	t.Helper()
	opts.Node = "n1"
	opts.Warn = func(err error) { t.Error(err) }
	r, err := d.Rank(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a shell script as the rank, and kills it at the end of the test if it still runs.
func start(t *testing.T, r *logs.Rank, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(console.Soon(t), "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Started()
	return cmd
}

// run runs a shell script as the rank to its end and closes the rank.
func run(t *testing.T, r *logs.Rank, script string, args ...string) {
	t.Helper()
	if err := start(t, r, script, args...).Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if err := r.Close(console.Soon(t)); err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
