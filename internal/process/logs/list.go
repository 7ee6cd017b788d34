package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// maxNames is the number of names of a directory that are held in memory at once.
const maxNames = 256

// attempts lists the attempts that have a directory, in ascending order.
func (d *Dir) attempts(filter Filter) ([]int, error) {
	var all []int
	err := list(d.root, ".", func(e fs.DirEntry) bool {
		if n, ok := parseAttempt(e.Name()); ok && e.IsDir() && filter.attempt(n) {
			all = append(all, n)
		}
		return true
	})
	slices.Sort(all)
	return all, err
}

// files lists the log files of an attempt in order. It includes links and other odd files, which
// cannot be opened later.
func (d *Dir) files(attempt int, filter Filter) ([]File, error) {
	var all []File
	err := list(d.root, File{Attempt: attempt}.dir(), func(e fs.DirEntry) bool {
		if f, ok := parseFile(attempt, e.Name()); ok && filter.file(f) {
			all = append(all, f)
		}
		return true
	})
	slices.SortFunc(all, File.compare)
	return all, err
}

// list calls see with the entries of a directory until it returns false.
func list(root *safefile.Root, name string, see func(fs.DirEntry) bool) error {
	if root == nil {
		return nil
	}
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(maxNames)
		for _, e := range entries {
			if !see(e) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
	}
}
