package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

type gathered struct {
	files map[File]string
	order []File
	err   error
}

func follow(t *testing.T, r *Reader) <-chan gathered {
	got := make(chan gathered, 1)
	go func() {
		files, order, err := gather(t, r, nil)
		got <- gathered{files, order, err}
	}()
	return got
}

// Many ranks write on both streams in two attempts. A follower of all files or of some, which
// begins at the start or later, gets everything in order.
func TestFollowWhileWritten(t *testing.T) {
	const ranks = 16
	d := openDir(t, t.TempDir())
	script := `i=0; while [ $i -lt 200 ]; do echo $i; echo err $i >&2; i=$((i+1)); done; seq 1 60000; printf torn`
	some := Filter{Attempt: 1, Ranks: func(r int) bool { return r%5 == 0 }}
	followers := []<-chan gathered{follow(t, d.Follow(everything, nil)), follow(t, d.Follow(some, nil))}
	var all, few []File
	for attempt := range 2 {
		var wg sync.WaitGroup
		for i := range ranks {
			r := newRank(t, d, RankOptions{Rank: i, Attempt: attempt})
			files := []File{{attempt, i, console.Stdout}, {attempt, i, console.Stderr}}
			if all = append(all, files...); some.file(files[0]) {
				few = append(few, files...)
			}
			wg.Go(func() { run(t, r, script) })
		}
		followers = append(followers, follow(t, d.Follow(everything, nil)))
		wg.Wait()
	}
	d.Done()
	followers = append(followers, follow(t, d.Follow(everything, nil)))
	for i, got := range followers {
		g := <-got
		if g.err != io.EOF {
			t.Error(i, g.err)
		}
		want := all
		if i == 1 {
			want = few
		}
		compareFiles(t, g.files, written(t, d, want...))
	}
	if d.hub.followers.Load() != nil {
		t.Error("a follower is left")
	}
}

// A follower that does not read delays no rank, needs no memory for unread output, and gets
// everything in the end.
func TestSlowFollower(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := d.Follow(everything, nil)
	for i := range 3 {
		run(t, newRank(t, d, RankOptions{Rank: i}), `seq 1 200000; echo e >&2`)
	}
	if n := len(r.follower.dirty); n != 6 {
		t.Errorf("%d files are owed", n)
	}
	d.Done()
	got, _, err := gather(t, r, nil)
	if err != io.EOF {
		t.Error(err)
	}
	var files []File
	for i := range 3 {
		files = append(files, File{0, i, console.Stdout}, File{0, i, console.Stderr})
	}
	compareFiles(t, got, written(t, d, files...))
}

// A rank that has written much output takes turns with other ranks.
func TestFollowTakesTurns(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := d.Follow(everything, nil)
	run(t, newRank(t, d, RankOptions{Rank: 0}), `seq 1 30000`)
	run(t, newRank(t, d, RankOptions{Rank: 1}), `echo little`)
	run(t, newRank(t, d, RankOptions{Rank: 2}), `seq 1 30000`)
	d.Done()
	_, order, err := gather(t, r, nil)
	var ranks []int
	for _, f := range order {
		ranks = append(ranks, f.Rank)
	}
	if got := fmt.Sprint(ranks); got != "[0 1 2 0 2 0 2]" || err != io.EOF {
		t.Errorf("order %s, error %v", got, err)
	}
}

func TestFollowSeesTheLimit(t *testing.T) {
	d := openDir(t, t.TempDir())
	got := follow(t, d.Follow(everything, nil))
	run(t, newRank(t, d, RankOptions{Limit: 10000}), `seq 1 100000`)
	d.Done()
	g := <-got
	f := File{0, 0, console.Stdout}
	if !strings.HasSuffix(g.files[f], "\ngolaunch: log limit of 10000 bytes reached, the rest is not kept\n") || g.err != io.EOF {
		t.Errorf("%d bytes, error %v", len(g.files[f]), g.err)
	}
	compareFiles(t, g.files, written(t, d, f))
}

// A follower stops reading files that shrink or vanish, and names them at the end; it still reads
// the other files.
func TestFollowedFilesVanish(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := d.Follow(everything, nil)
	ranks := make([]*Rank, 3)
	say := func(i int, text string) {
		if _, err := ranks[i].Stdout.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := ranks[i].Flush(pipetest.Soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		c, err := r.Next(pipetest.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", c.Rank, c.Data)
	}
	for i := range ranks {
		ranks[i] = newRank(t, d, RankOptions{Rank: i})
		if say(i, "before"); next() != fmt.Sprintf("%d before", i) {
			t.Error("not what was written")
		}
	}
	path := func(rank int) string { return filepath.Join(d.Path(), File{0, rank, console.Stdout}.path()) }
	if err := os.Remove(path(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path(1), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range ranks {
			say(i, "x")
		}
		if got := next(); got != "2 x" {
			t.Errorf("got %q", got)
		}
	}
	for _, rank := range ranks {
		if err := rank.Close(pipetest.Soon(t)); err != nil {
			t.Error(err)
		}
	}
	d.Done()
	got, _, err := gather(t, r, nil)
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(got) > 0 || len(lines) != 2 ||
		!strings.Contains(lines[0], "rank 0, ") || !strings.Contains(lines[0], "no such file") ||
		!strings.Contains(lines[1], "rank 1, ") || !strings.Contains(lines[1], "shrunk") {
		t.Errorf("got %v, error %v", got, err)
	}
}

// Next waits for a write, the end, or its context, and for nothing else.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := OpenDir(t.TempDir(), "job1")
		if err != nil {
			t.Fatal(err)
		}
		plant(t, d, map[string]string{"attempt-0/rank-0.stdout.log": "0", "attempt-0/rank-1.stdout.log": "1"})
		r := d.Follow(Filter{Ranks: func(r int) bool { return r == 1 }}, map[File]int64{{0, 1, console.Stdout}: 1})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 1)
		next := func() {
			c, err := r.Next(ctx)
			got <- fmt.Sprintf("%s %v", c.Data, err)
		}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			select {
			case text := <-got:
				if text != want {
					t.Errorf("got %q, want %q", text, want)
				}
			default:
				if want != "" {
					t.Errorf("waits, want %q", want)
				}
			}
		}
		go next()
		expect("")
		writeTo(t, d, File{0, 0, console.Stdout}, "not wanted")
		expect("")
		d.hub.wrote(File{0, 1, console.Stdout}) // nothing new
		expect("")
		writeTo(t, d, File{0, 1, console.Stdout}, "new")
		expect("new <nil>")
		go next()
		cancel()
		expect(" context canceled")
		ctx = t.Context()
		go next()
		expect("")
		d.Done()
		expect(" EOF")
		if err := errors.Join(r.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
}

// writeTo writes as the pump of a rank does.
func writeTo(t *testing.T, d *Dir, f File, text string) {
	t.Helper()
	l := &logFile{open: func() (*os.File, error) { return openLog(d.root, f.path()) }, wrote: func() { d.hub.wrote(f) }}
	l.write([]byte(text))
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// Closing the directory ends its followers.
func TestCloseEndsFollowers(t *testing.T) {
	d, err := OpenDir(t.TempDir(), "job1")
	if err != nil {
		t.Fatal(err)
	}
	got := follow(t, d.Follow(everything, nil))
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if g := <-got; g.err == nil || len(g.files) > 0 {
		t.Errorf("got %v, error %v", g.files, g.err)
	}
}
