package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// Directory is where a job's ranks find the files of a workspace. Only these ranks use it, and they
// may write to it.
type Directory struct {
	// Path is the path of the directory, even before it is made.
	Path  string
	cache *Cache
	// lock is the open and locked directory; nil before it is made.
	lock *os.File
}

// NewDirectory returns a directory for a job. It is not made yet.
func (c *Cache) NewDirectory(job string) *Directory {
	return &Directory{Path: filepath.Join(c.dir, treesDir, job+"-"+strings.ToLower(rand.Text()[:8])), cache: c}
}

// Resume takes over the directory at a path from a process that has died. lock is that process's
// lock, if another process has kept it, else nil. An error says that the directory was not made
// completely. The caller may then call Make.
func (c *Cache) Resume(path string, lock *os.File) (*Directory, error) {
	d := &Directory{Path: path, cache: c, lock: lock}
	if lock != nil {
		return d, nil
	}
	return d, c.locked(func() error { return d.hold(path) })
}

// Lock returns the open directory once it is made. A process with a duplicate keeps the directory
// from being removed.
func (d *Directory) Lock() *os.File { return d.lock }

// hold locks the directory.
func (d *Directory) hold(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(err, f.Close())
	}
	d.lock = f
	return nil
}

// Make makes the directory with the files of an archive, which belong to the user with the given
// rights. The directory appears under its name once it is complete. Make also removes the
// directories that dead processes have left behind.
func (d *Directory) Make(a *Archive, r *safefile.Rights) error {
	part := d.Path + partSuffix
	err := d.cache.locked(func() error {
		d.cache.sweepDirectories()
		err := os.Mkdir(part, 0o700)
		if err == nil && r != nil {
			err = os.Lchown(part, int(r.UID), int(r.GID))
		}
		if err == nil {
			err = d.hold(part)
		}
		return err
	})
	if err == nil {
		err = r.Do(func() error {
			root, err := safefile.Open(part)
			if err != nil {
				return err
			}
			defer func() { _ = root.Close() }() // a directory, to which nothing was written
			return Unpack(a.Reader(), a.Bytes, root)
		})
	}
	if err == nil {
		err = os.Rename(part, d.Path)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, removeAll(part))
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
	return fmt.Errorf("cannot unpack workspace %.12s: %w", a.ID, err)
}

// Remove removes the directory, if it was made.
func (d *Directory) Remove() error {
	if d.lock == nil {
		return nil
	}
	return errors.Join(removeAll(d.Path), d.lock.Close())
}

// sweepDirectories removes the directories of dead processes.
func (c *Cache) sweepDirectories() {
	entries, _ := os.ReadDir(filepath.Join(c.dir, treesDir))
	for _, e := range entries {
		name := filepath.Join(c.dir, treesDir, e.Name())
		unused(name, func() { _ = removeAll(name) })
	}
}

// removeAll removes a tree, in which directories may be read-only.
func removeAll(name string) error {
	err := os.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := safefile.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory, to which nothing was written
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = root.Chmod(path, 0o700) // otherwise RemoveAll fails again
		}
		return nil
	})
	return os.RemoveAll(name)
}
