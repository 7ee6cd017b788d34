package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

// receive puts an archive into a cache.
func receive(c *Cache, w report.Workspace, content []byte) (*Archive, error) {
	in, err := c.Receive(w)
	if err != nil {
		return nil, err
	}
	defer in.Abort()
	if _, err := in.Write(content); err != nil {
		return nil, err
	}
	return in.Commit()
}

func archiveOf(content []byte) report.Workspace {
	sum := sha256.Sum256(content)
	return report.Workspace{ID: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
}

func TestWrongContent(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	w := archiveOf([]byte("right"))
	for _, content := range []string{"", "righ", "wrong", "right and more"} {
		if a, err := receive(c, w, []byte(content)); err == nil {
			t.Errorf("%q was taken for another content: %v", content, a)
		}
	}
	if _, err := c.Get(w); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after that: %v", err)
	}
	a, err := receive(c, w, []byte("right"))
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	verified.Clear() // another process does not know the content of the file
	if a, err = c.Get(w); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := os.WriteFile(c.path(w.ID), []byte("torn!"), 0o600); err != nil {
		t.Fatal(err)
	}
	verified.Clear()
	if _, err := c.Get(w); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged archive: %v", err)
	}
	if _, err := os.Lstat(c.path(w.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged archive is still there: %v", err)
	}
}

// TestEviction checks that the cache removes the least recently used archive, and nothing that this
// or another process uses.
func TestEviction(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	c.limit = 25
	contents := map[string][]byte{}
	for i := range 5 {
		name := fmt.Sprintf("content %d", i) // 9 bytes
		contents[name] = []byte(name)
	}
	has := func(i int) bool {
		a, err := NewCache(c.dir).Get(archiveOf(contents[fmt.Sprintf("content %d", i)]))
		if err == nil {
			a.Close()
		}
		return err == nil
	}
	var used *Archive
	for i := range 4 {
		a, err := receive(c, archiveOf(contents[fmt.Sprintf("content %d", i)]), contents[fmt.Sprintf("content %d", i)])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			used = a // as another process would
			continue
		}
		a.Close()
	}
	for i, want := range []bool{true, false, false, true} {
		if got := has(i); got != want {
			t.Errorf("archive %d is there: %v, want %v", i, got, want)
		}
	}
	used.Close()
	if !has(3) { // this is now the most recently used archive
		t.Fatal("archive 3 is gone")
	}
	a, err := receive(c, archiveOf(contents["content 4"]), contents["content 4"])
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i, want := range []bool{false, false, false, true, true} {
		if got := has(i); got != want {
			t.Errorf("in the end archive %d is there: %v, want %v", i, got, want)
		}
	}
}

// TestSweep checks that the cache removes the files of dead processes, and keeps files that living
// processes use.
func TestSweep(t *testing.T) {
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	a, alive := unpacked(t, c, t.TempDir())
	defer a.Close()
	dead := made(t, c, a)
	write(t, dead.Path, "a/b")
	if err := os.Chmod(filepath.Join(dead.Path, "a"), 0o500); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does
	in, err := c.Receive(report.Workspace{ID: strings.Repeat("0", 64), Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	in.file.Close()
	next := made(t, NewCache(c.dir), a)
	if _, err := os.Stat(dead.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a dead process: %v", err)
	}
	for _, d := range []*Directory{alive, next} {
		if _, err := os.Stat(d.Path); err != nil {
			t.Error(err)
		}
	}
	other, err := NewCache(c.dir).Receive(report.Workspace{ID: strings.Repeat("0", 64), Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abort()
	if parts, _ := filepath.Glob(filepath.Join(c.dir, "*"+partSuffix)); len(parts) != 1 {
		t.Errorf("incoming archives: %q, want one", parts)
	}
	next.lock.Close()
	if _, err := c.Resume(dead.Path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resume a directory that is gone: %v", err)
	}
	resumed, err := NewCache(c.dir).Resume(next.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(alive.Remove(), resumed.Remove()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, treesDir)); err != nil || len(left) > 0 {
		t.Errorf("in the end there are %v (%v)", left, err)
	}
}

// full is a disk without space.
type full struct{ io.Writer }

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestFullDisk checks that a failed write is not blamed on the file that was read.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "large")
	if err := os.Truncate(filepath.Join(dir, "large"), 1<<20); err != nil {
		t.Fatal(err)
	}
	found, err := scan(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := found.pack(full{}); !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "large") {
		t.Errorf("pack: %v", err)
	}
	c := NewCache(filepath.Join(t.TempDir(), "cache"))
	in, err := c.Receive(report.Workspace{Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	disk, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	part := in.file
	in.file = disk
	defer func() { in.file = part }() // for Abort
	want := fmt.Sprintf("cannot keep a workspace in %s: no space left on device; free space there", c.dir)
	if _, err := in.Write([]byte("x")); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
