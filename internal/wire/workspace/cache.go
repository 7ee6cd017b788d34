// Package workspace copies a directory to other machines: it packs the directory into an archive,
// keeps archives by their content, and unpacks them.
//
// An archive's ID is the SHA-256 of its bytes. So a changed file makes another archive, and equal
// archives are kept and sent once. A process that uses an archive, or a directory that was unpacked
// from one, holds a lock (flock(2)) that ends with the process. So the next process finds and
// removes everything that a killed process has left behind, and never removes anything in use.
package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/report"
)

// CacheLimit bounds the archives that a cache keeps for later, in bytes. It is Ray's limit
// (RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB). Archives in use are kept in any case.
const CacheLimit = 10 << 30

// MaxLimit bounds the files of a workspace, in bytes. MaxArchive bounds its archive, which adds 2
// KiB for each file, and more for long names. A cache has room for any archive.
const (
	MaxLimit   = 8 << 30
	MaxArchive = CacheLimit
)

const (
	archiveSuffix = ".tar"
	partSuffix    = ".part"
	treesDir      = "trees"
	lockFile      = "lock"
)

// Cache has archives in a directory, which several processes of a user may share.
type Cache struct {
	dir   string
	limit int64
}

// verified has the archives whose content this process has verified: a fs.FileInfo for each path.
var verified sync.Map

// NewCache returns the cache in a directory. The directory is made when it is first needed.
func NewCache(dir string) *Cache {
	return &Cache{dir, CacheLimit}
}

// Archive is a packed workspace. It stays in its cache until Close.
type Archive struct {
	report.Workspace
	file *os.File
}

// Close lets the cache remove the archive.
func (a *Archive) Close() { a.file.Close() }

// Reader reads the archive from its beginning.
func (a *Archive) Reader() io.Reader { return io.NewSectionReader(a.file, 0, a.Bytes) }

// locked runs f while no other process changes which files the cache has. It makes the cache's
// directory. Other users can pass through the directory, because it contains the directories of
// their jobs.
func (c *Cache) locked(f func() error) error {
	for _, dir := range []string{c.dir, filepath.Join(c.dir, treesDir)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("cannot make a directory for workspaces: %w", err)
		}
	}
	root, err := safefile.Open(c.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // root is a directory, and nothing was written to it
	if err := safefile.Dir(root); err != nil {
		return fmt.Errorf("cannot keep workspaces: %w", err)
	}
	for _, dir := range []string{".", treesDir} { // a umask may have shut out the users of jobs
		if err := root.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("cannot keep workspaces: %w", err)
		}
	}
	lock, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock the workspaces in %s: %w", c.dir, err)
	}
	return f()
}

func (c *Cache) path(id string) string { return filepath.Join(c.dir, id+archiveSuffix) }

// ValidID reports whether a text can be the ID of a workspace.
func ValidID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == sha256.Size && strings.ToLower(id) == id
}

// Get returns an archive, or fs.ErrNotExist. It removes an archive with wrong content.
func (c *Cache) Get(w report.Workspace) (*Archive, error) {
	if !ValidID(w.ID) {
		return nil, fmt.Errorf("%q is no workspace", w.ID)
	}
	if _, err := os.Lstat(c.path(w.ID)); err != nil {
		return nil, err
	}
	var a *Archive
	known := false
	err := c.locked(func() error {
		f, err := os.OpenFile(c.path(w.ID), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		}
		if err != nil {
			f.Close()
			return err
		}
		_ = os.Chtimes(c.path(w.ID), time.Time{}, time.Now()) // the least recently used archive is removed first
		if last, ok := verified.Load(c.path(w.ID)); ok {
			known = os.SameFile(last.(fs.FileInfo), info) && last.(fs.FileInfo).Size() == info.Size()
		}
		w.Bytes = info.Size()
		a = &Archive{w, f}
		return nil
	})
	if err != nil || known {
		return a, err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, a.Reader())
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != w.ID {
		err = errors.Join(fs.ErrNotExist, c.locked(func() error { return c.removeWrong(a) }))
	}
	if err == nil {
		err = c.know(a)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// removeWrong removes an archive with wrong content, unless another process has replaced it by a
// right one.
func (c *Cache) removeWrong(a *Archive) error {
	wrong, err := a.file.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Lstat(c.path(a.ID)); err != nil || !os.SameFile(wrong, now) {
		return nil //nolint:nilerr // it is gone
	}
	return os.Remove(c.path(a.ID))
}

// know notes that the content of an archive is right.
func (c *Cache) know(a *Archive) error {
	info, err := a.file.Stat()
	verified.Store(c.path(a.ID), info)
	return err
}

// Pack packs a directory with at most limit bytes of files.
func (c *Cache) Pack(dir string, limit int64) (*Archive, error) {
	t, err := scan(dir, limit)
	if err != nil {
		return nil, err
	}
	in, err := c.Receive(report.Workspace{Bytes: maxSize})
	if err != nil {
		return nil, err
	}
	defer in.Abort()
	packed, err := t.pack(in)
	if err != nil {
		return nil, err
	}
	in.want = packed
	return in.Commit()
}

// maxSize is more than any archive has.
const maxSize = 1 << 62

// unused runs f if no process uses a file.
func unused(name string, f func()) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		f()
	}
}

// sweepParts removes archives that dead processes were receiving. A file that cannot be removed
// stays for the next sweep, as in evict and sweepDirectories.
func (c *Cache) sweepParts() {
	names, _ := filepath.Glob(filepath.Join(c.dir, "*"+partSuffix))
	for _, name := range names {
		unused(name, func() { _ = os.Remove(name) })
	}
}

// evict removes archives that no process uses, the least recently used first, until the remaining
// archives are within the limit.
func (c *Cache) evict() {
	names, _ := filepath.Glob(filepath.Join(c.dir, "*"+archiveSuffix))
	infos := map[string]fs.FileInfo{}
	var total int64
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil {
			infos[name] = info
			total += info.Size()
		}
	}
	slices.SortFunc(names, func(x, y string) int {
		if infos[x] == nil || infos[y] == nil {
			return cmp.Compare(x, y)
		}
		return infos[x].ModTime().Compare(infos[y].ModTime())
	})
	for _, name := range names {
		if total <= c.limit {
			return
		}
		if info := infos[name]; info != nil {
			unused(name, func() {
				if os.Remove(name) == nil {
					total -= info.Size()
				}
			})
		}
	}
}
