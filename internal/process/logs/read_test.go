package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// gather reads to the end, and checks that the chunks of each file are in order and without a gap.
func gather(t *testing.T, r *Reader, from map[File]int64) (got map[File]string, order []File, err error) {
	t.Helper()
	got = map[File]string{}
	at := map[File]int64{}
	for f, offset := range from {
		at[f] = offset
	}
	ctx := pipetest.Soon(t)
	for {
		c, err := r.Next(ctx)
		if err != nil {
			if closed := r.Close(); closed != nil {
				t.Error(closed)
			}
			return got, order, err
		}
		if len(c.Data) == 0 || len(c.Data) > maxChunk || c.Offset != at[c.File] {
			t.Fatalf("%s: a chunk of %d bytes at %d, want it at %d", c.File, len(c.Data), c.Offset, at[c.File])
		}
		at[c.File] += int64(len(c.Data))
		got[c.File] += string(c.Data)
		order = append(order, c.File)
	}
}

// written returns the contents of files.
func written(t *testing.T, d *Dir, files ...File) map[File]string {
	t.Helper()
	all := map[File]string{}
	for _, f := range files {
		all[f] = readFile(t, d.Path(), f.path())
	}
	return all
}

func compareFiles(t *testing.T, got, want map[File]string) {
	t.Helper()
	for f, text := range want {
		if got[f] != text {
			t.Errorf("%s: %d bytes, want %d", f, len(got[f]), len(text))
		}
	}
	for f := range got {
		if _, ok := want[f]; !ok {
			t.Errorf("%s is not wanted", f)
		}
	}
}

// plant makes files in a directory as if ranks had written them.
func plant(t *testing.T, d *Dir, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(d.Path(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var everything = Filter{Attempt: AllAttempts}

func TestReadOrder(t *testing.T) {
	d := openDir(t, t.TempDir())
	for _, attempt := range []int{10, 2, 0} {
		for _, rank := range []int{11, 3, 0} {
			run(t, newRank(t, d, RankOptions{Rank: rank, Attempt: attempt}), `seq $1 40000; echo err >&2`, fmt.Sprint(rank))
		}
	}
	plant(t, d, map[string]string{
		"events.jsonl": "x", "attempt-00/rank-0.stdout.log": "x", "attempt-/rank-0.stdout.log": "x", "attempt_0/0/stdout.log": "x",
		"attempt-0/rank-00.stdout.log": "x", "attempt-0/rank--1.stdout.log": "x", "attempt-0/rank-0.stdout.log.gz": "x",
		"attempt-0/rank-0.error.json": "x", "attempt-0/0.stdout.log": "x", "rank-0.stdout.log": "x",
	})
	for _, c := range []struct {
		filter          Filter
		attempts, ranks []int
	}{
		{everything, []int{0, 2, 10}, []int{0, 3, 11}},
		{Filter{}, []int{0}, []int{0, 3, 11}},
		{Filter{Attempt: 2, Ranks: func(r int) bool { return r > 0 }}, []int{2}, []int{3, 11}},
		{Filter{Attempt: 5}, nil, nil},
	} {
		var want []File
		for _, attempt := range c.attempts {
			for _, rank := range c.ranks {
				want = append(want, File{attempt, rank, console.Stdout}, File{attempt, rank, console.Stderr})
			}
		}
		got, order, err := gather(t, d.Read(c.filter, nil), nil)
		if err != io.EOF {
			t.Error(err)
		}
		if order = slices.Compact(order); !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		compareFiles(t, got, written(t, d, want...))
	}
}

// TestReadRefusesOddFiles: a log file that is a link or another odd thing is not followed, and the
// other files are read.
func TestReadRefusesOddFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := openDir(t, t.TempDir())
	plant(t, d, map[string]string{"attempt-0/rank-7.stdout.log": "read"})
	at := func(name string) string { return filepath.Join(d.Path(), name) }
	for _, err := range []error{
		os.Symlink(secret, at("attempt-0/rank-0.stdout.log")),
		os.Symlink("rank-7.stdout.log", at("attempt-0/rank-1.stdout.log")),
		os.Link(secret, at("attempt-0/rank-2.stdout.log")),
		syscall.Mkfifo(at("attempt-0/rank-3.stdout.log"), 0o600),
		os.Mkdir(at("attempt-0/rank-4.stdout.log"), 0o700),
		os.Symlink("missing", at("attempt-0/rank-5.stdout.log")),
		os.Symlink("attempt-0", at("attempt-1")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := gather(t, d.Read(everything, nil), nil)
	compareFiles(t, got, map[File]string{{0, 7, console.Stdout}: "read"})
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != 6 {
		t.Errorf("%d errors: %v", len(lines), err)
	}
	for rank, line := range lines {
		if want := fmt.Sprintf("read the stdout log of rank %d, attempt 0 (%s", rank, d.Path()); !strings.HasPrefix(line, want) {
			t.Errorf("error %q, want %q", line, want)
		}
	}
}

func TestManyErrorsAreCounted(t *testing.T) {
	d := openDir(t, t.TempDir())
	plant(t, d, map[string]string{"attempt-0/rank-99.stdout.log": "read"})
	for rank := range 20 {
		if err := os.Symlink("missing", filepath.Join(d.Path(), File{0, rank, console.Stdout}.path())); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := gather(t, d.Read(everything, nil), nil)
	compareFiles(t, got, map[File]string{{0, 99, console.Stdout}: "read"})
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != maxErrors+1 || !strings.HasSuffix(lines[maxErrors], "4 more files failed") {
		t.Errorf("%d lines: %v", len(lines), err)
	}
}

// TestResumeAnywhere: a reader that continues another one at any position gives the same bytes.
func TestResumeAnywhere(t *testing.T) {
	d := openDir(t, t.TempDir())
	small, big := File{0, 0, console.Stdout}, File{1, 3, console.Stderr}
	plant(t, d, map[string]string{small.path(): "two\nlines\xff\x00", big.path(): strings.Repeat("0123456789", 2*maxChunk/10)})
	want := written(t, d, small, big)
	for offset := range int64(len(want[small])) {
		from := map[File]int64{small: offset, big: offset * (maxChunk / 5)}
		got, _, err := gather(t, d.Read(everything, from), from)
		if err != io.EOF {
			t.Error(err)
		}
		for f := range want {
			if want[f][:from[f]]+got[f] != want[f] {
				t.Errorf("%s from %d differs", f, from[f])
			}
		}
	}
	got, _, err := gather(t, d.Read(everything, map[File]int64{small: -1, big: int64(len(want[big]))}), nil)
	if len(got) > 0 || err != io.EOF {
		t.Errorf("got %d files, error %v", len(got), err)
	}
}

// TestResumeChunkByChunk reads each chunk with a new reader while the file grows.
func TestResumeChunkByChunk(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := newRank(t, d, RankOptions{})
	f := File{0, 0, console.Stdout}
	from := map[File]int64{}
	var got bytes.Buffer
	for i := range 50 {
		if _, err := fmt.Fprintf(r.Stdout, "line %d %s\n", i, strings.Repeat("x", 3000*i)); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(pipetest.Soon(t)); err != nil {
			t.Fatal(err)
		}
		reader := d.Read(everything, from)
		c, err := reader.Next(pipetest.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		got.Write(c.Data)
		from[f] = c.Offset + int64(len(c.Data))
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
	rest, _, err := gather(t, d.Read(everything, from), from)
	if want := written(t, d, f)[f]; got.String()+rest[f] != want || err != io.EOF {
		t.Errorf("%d and %d bytes, want %d; error %v", got.Len(), len(rest[f]), len(want), err)
	}
}

func TestShrunkFile(t *testing.T) {
	d := openDir(t, t.TempDir())
	plant(t, d, map[string]string{"attempt-0/rank-0.stdout.log": "short", "attempt-0/rank-1.stdout.log": "long enough"})
	from := map[File]int64{{0, 0, console.Stdout}: 6, {0, 1, console.Stdout}: 6}
	got, _, err := gather(t, d.Read(everything, from), from)
	compareFiles(t, got, map[File]string{{0, 1, console.Stdout}: "nough"})
	if err == nil || !strings.Contains(err.Error(), "rank 0, attempt 0 (") || !strings.Contains(err.Error(), "shrunk") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	big := File{0, 0, console.Stdout}
	plant(t, d, map[string]string{big.path(): strings.Repeat("x", 3*maxChunk)})
	r := d.Read(everything, nil)
	if _, err := r.Next(pipetest.Soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(d.Path(), big.path()), 1); err != nil {
		t.Fatal(err)
	}
	got, _, err = gather(t, r, nil)
	compareFiles(t, got, map[File]string{{0, 1, console.Stdout}: "long enough"})
	if err == nil || !strings.Contains(err.Error(), "rank 0, attempt 0 (") || !strings.Contains(err.Error(), "byte 65536 is gone") {
		t.Error(err)
	}
}

func TestReadEndsWithContext(t *testing.T) {
	d := openDir(t, t.TempDir())
	plant(t, d, map[string]string{"attempt-0/rank-0.stdout.log": "x"})
	r := d.Read(everything, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Next(gone); err != context.Canceled {
		t.Error(err)
	}
	if c, err := r.Next(pipetest.Soon(t)); err != nil || string(c.Data) != "x" {
		t.Errorf("%q, error %v", c.Data, err)
	}
	for range 2 {
		if _, err := r.Next(pipetest.Soon(t)); err != io.EOF {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestFindDir(t *testing.T) {
	base := t.TempDir()
	for _, missing := range []string{base, filepath.Join(base, "none")} {
		if _, err := FindDir(missing, "job1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("entries %v, error %v", entries, err)
	}
	run(t, newRank(t, openDir(t, base), RankOptions{}), `echo x`)
	if err := os.Symlink("job1", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"link", "../job1", ""} {
		if _, err := FindDir(base, job); err == nil {
			t.Errorf("%q was opened", job)
		}
	}
	d, err := FindDir(base, "job1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, read := range []func(Filter, map[File]int64) *Reader{d.Read, d.Follow} {
		got, _, err := gather(t, read(everything, nil), nil)
		if err != io.EOF {
			t.Error(err)
		}
		compareFiles(t, got, map[File]string{{0, 0, console.Stdout}: "x\n"})
	}
}
