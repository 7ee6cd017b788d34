package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// The bounds of one inspection.
const (
	maxEntries = 1 << 16
	maxDepth   = 6
	maxOpens   = 1 << 12
	maxRead    = 64 << 20
	maxList    = 16 << 20
)

// tree is a checkpoint with the sizes and times of its files.
type tree struct {
	dir  fs.FS
	name string
	// files are sorted by path below name. The path is "." for a checkpoint that is a file.
	files          []file
	bytes          int64
	oldest, newest time.Time
	// copied says that the times of files prove nothing.
	copied bool
	// opens counts the files that were opened, and read the bytes that were read. err says why not
	// all of the checkpoint is known.
	opens, read int
	err         error
}

type file struct {
	path string
	size int64
	at   time.Time
}

func (f file) base() string { return path.Base(f.path) }

// errPartly says that a checkpoint is larger than this package will read.
var errPartly = errors.New("it has more files, or longer ones, than golaunch reads")

// scan lists the files of a checkpoint.
func scan(dir fs.FS, name string, copied bool) (*tree, error) {
	t := &tree{dir: dir, name: name, copied: copied}
	info, err := fs.Stat(dir, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		t.descend(".", 0)
	} else {
		t.add(".", info)
	}
	slices.SortFunc(t.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return t, nil
}

func (t *tree) descend(at string, depth int) {
	entries, err := readDir(t.dir, path.Join(t.name, at))
	if err != nil {
		t.err = err
		return
	}
	for _, e := range entries {
		below := path.Join(at, e.Name())
		switch info, err := fs.Stat(t.dir, path.Join(t.name, below)); {
		case errors.Is(err, fs.ErrNotExist): // removed, or a link to nothing
		case err != nil:
			t.err = err
		case depth == maxDepth, len(t.files) >= maxEntries:
			t.err = errPartly
			return
		case info.IsDir() && e.Type()&fs.ModeSymlink == 0:
			t.descend(below, depth+1)
		case info.Mode().IsRegular():
			t.add(below, info)
		}
	}
}

func (t *tree) add(at string, info fs.FileInfo) {
	f := file{at, info.Size(), info.ModTime()}
	t.files = append(t.files, f)
	t.bytes += f.size
	if t.oldest.IsZero() || f.at.Before(t.oldest) {
		t.oldest = f.at
	}
	if f.at.After(t.newest) {
		t.newest = f.at
	}
}

// readDir returns at most maxEntries entries of a directory.
func readDir(dir fs.FS, name string) ([]fs.DirEntry, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	entries, err := d.ReadDir(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(entries) == maxEntries {
		err = errPartly
	}
	return entries, err
}

// newer reports whether the times prove that a file was written after another.
func (t *tree) newer(at, than time.Time) bool { return !t.copied && at.After(than) }

// find returns the file of a path.
func (t *tree) find(at string) (file, bool) {
	i, ok := slices.BinarySearchFunc(t.files, at, func(f file, at string) int { return strings.Compare(f.path, at) })
	if !ok {
		return file{}, false
	}
	return t.files[i], true
}

func (t *tree) has(at string) bool {
	_, ok := t.find(at)
	return ok
}

// any returns the first file that matches.
func (t *tree) any(match func(file) bool) (file, bool) {
	i := slices.IndexFunc(t.files, match)
	if i < 0 {
		return file{}, false
	}
	return t.files[i], true
}

// readAt reads a part of a file. If the file ends within that part, readAt returns less.
func (t *tree) readAt(f file, from, length int64) []byte {
	from = max(0, from)
	length = min(length, f.size-from)
	if length <= 0 {
		return nil
	}
	return t.open(path.Join(t.name, f.path), from, length)
}

// beside reads a small file in the directory of the checkpoint, and returns when it was written.
func (t *tree) beside(name string) (text string, at time.Time, ok bool) {
	info, err := fs.Stat(t.dir, name)
	if err != nil || !info.Mode().IsRegular() {
		return "", time.Time{}, false
	}
	return string(t.open(name, 0, min(info.Size(), 1024))), info.ModTime(), true
}

func (t *tree) open(name string, from, length int64) []byte {
	if t.opens++; t.opens > maxOpens || length > int64(maxRead-t.read) {
		t.err = errPartly
		return nil
	}
	t.read += int(length)
	part := make([]byte, length)
	f, err := t.dir.Open(name)
	if err == nil {
		defer func() { _ = f.Close() }()
		at, ok := f.(io.ReaderAt)
		if !ok {
			err = errors.New("it cannot be read at an offset")
		} else {
			var n int
			n, err = at.ReadAt(part, from)
			part = part[:n]
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) {
		t.err = fmt.Errorf("reading %s: %w", name, err)
	}
	return part
}
