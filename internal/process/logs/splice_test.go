package logs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// carrier makes the test program carry a rank's output, from descriptors 3 and 4 to the directory
// in its argument, until it is killed.
const carrier = "carrier"

func resume() {
	d, err := OpenDir(os.Args[1], "job1")
	if err == nil {
		_, err = d.Resume(RankOptions{Exact: true}, 3, 4)
	}
	var c Chunk
	for r := d.Follow(Filter{Attempt: AllAttempts}, nil); err == nil; c, err = r.Next(context.Background()) {
		fmt.Println(c.File, c.Offset)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// carried lets another process carry the output until the log has reached at least the offset
// least, and kills that process.
func carried(t *testing.T, base string, kept [2]int, least int64) (at int64) {
	t.Helper()
	cmd := exec.CommandContext(pipetest.Soon(t), os.Args[0], base)
	cmd.Env = append(os.Environ(), helper+"="+carrier)
	for i := range kept {
		fd, err := unix.Dup(kept[i])
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "kept")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && at < least; {
		_, _ = fmt.Sscanf(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], "%d", &at)
	}
	if at < least {
		t.Errorf("it has carried %d bytes, want %d", at, least)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return at
}

// TestResume repeatedly kills the process that carries a rank's output.
func TestResume(t *testing.T) {
	base := t.TempDir()
	d := openDir(t, base)
	r := newRank(t, d, RankOptions{Exact: true})
	var kept [2]int
	for i, f := range r.Ends() {
		fd, err := proc.Duplicate(f)
		if err != nil {
			t.Fatal(err)
		}
		kept[i] = fd
	}
	const lines = 60_000
	rank := start(t, r, fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; echo error $i >&2; done", lines))
	if err := r.Close(pipetest.Soon(t)); err != nil { // the first carrier ends normally
		t.Fatal(err)
	}
	at := int64(0)
	for range 5 {
		at = carried(t, base, kept, at+20_000)
	}
	again, err := d.Resume(RankOptions{Node: "n1", Exact: true}, kept[0], kept[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := rank.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := again.Flush(pipetest.Soon(t)); err != nil {
		t.Fatal(err)
	}
	if tail := again.Tail(); !strings.HasSuffix(tail, fmt.Sprintf("error %d", lines)) {
		t.Errorf("the tail is %q", tail)
	}
	if err := again.Close(pipetest.Soon(t)); err != nil {
		t.Fatal(err)
	}
	for stream, word := range map[string]string{"stdout": "line", "stderr": "error"} {
		var want bytes.Buffer
		for i := range lines {
			fmt.Fprintln(&want, word, i+1)
		}
		if got := readFile(t, d.Path(), "attempt-0", "rank-0."+stream+".log"); got != want.String() {
			t.Errorf("%s has %d bytes, want %d", stream, len(got), want.Len())
		}
	}
}

// TestExactAtTheLimit: at the limit, and on a full disk, output that cannot be spliced is handled
// as without Exact.
func TestExactAtTheLimit(t *testing.T) {
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, RankOptions{Exact: true, Limit: 10}), `echo 12345; echo 6789012345`)
	want := "12345\n6789\ngolaunch: log limit of 10 bytes reached, the rest is not kept\n"
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
