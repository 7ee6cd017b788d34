package logs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// Dir is the log directory of one job, <base>/<job id>. Nodes may share it over a network file
// system: ranks are numbered across the job, so no two write the same file. [Access.TakeDir] keeps
// out other runs of a job with the same ID.
type Dir struct {
	path         string
	job          string
	access       Access
	parent, root *safefile.Root
	// lock is a shared lock of every process that has the directory open; Prune removes only
	// unlocked directories. made says that this process made the directory.
	lock *os.File
	made bool
	// began has the attempts whose directories this process has made.
	began sync.Map
	// owner holds the directory for a run; nil for readers.
	owner io.Closer
	// beats is the directory of heartbeats, whose names begin with beatName; nil if they are beside
	// the logs.
	beats    *safefile.Root
	beatName string
	hub      hub
}

const maxJobID = 128

// isJobID reports whether s is a safe directory name: no separator and no leading dot.
func isJobID(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r))
	}
	return s != "" && len(s) <= maxJobID && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, odd)
}

// Access has the rights to make, read and remove files: Base for the job's directory itself, Job
// for its contents. The directory belongs to the user of Job.
type Access struct{ Base, Job *safefile.Rights }

// OpenDir makes the log directory of a job, mode 0700, and base if missing. It accepts an existing
// directory if that is no symbolic link and, by the rules of package safefile, belongs to its user
// alone. No name inside can lead out of it.
func (a Access) OpenDir(base, job string) (*Dir, error) {
	d, err := a.newDir(base, job, (*Dir).create)
	if err != nil {
		return nil, cannotOpen(job, base, err)
	}
	return d, nil
}

// cannotOpen advises another directory, unless the reason is the limit of open files.
func cannotOpen(job, base string, err error) error {
	err = fmt.Errorf("open the log directory of job %s in %s: %w", job, base, err)
	if errors.Is(err, unix.EMFILE) {
		return err
	}
	return fmt.Errorf("%w (choose another with --log-dir)", err)
}

// NoDir is for a job without log files: output is dropped and there is nothing to read.
func NoDir(job string) *Dir { return &Dir{job: job} }

// FindDir opens an existing log directory to read. The error is an fs.ErrNotExist if there is none.
func (a Access) FindDir(base, job string) (*Dir, error) {
	d, err := a.newDir(base, job, (*Dir).find)
	if err != nil {
		return nil, fmt.Errorf("find the logs of job %s in %s: %w", job, base, err)
	}
	d.Done()
	return d, nil
}

func (a Access) newDir(base, job string, open func(d *Dir, base string) error) (*Dir, error) {
	if !isJobID(job) {
		return nil, fmt.Errorf("job id %q may have only letters, digits, '_', '-' and '.', up to 128", job)
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	for range maxEntries {
		d := &Dir{path: filepath.Join(base, job), job: job, access: a}
		err := open(d, base)
		if err == nil {
			return d, nil
		}
		if err = errors.Join(err, d.Close()); !errors.Is(err, errRemoved) {
			return nil, err
		}
	}
	return nil, errRemoved
}

// errRemoved says that another process removed a directory while this one opened it. This process
// then makes the directory again, until it has tried maxEntries times.
var errRemoved = errors.New("it was removed at the same time")

const maxEntries = 3

func (d *Dir) create(base string) (err error) {
	err = d.access.Base.Do(func() error {
		if err := safefile.Path(base); err != nil {
			return err
		}
		return os.MkdirAll(base, 0o700)
	})
	if err != nil {
		return err
	}
	if d.parent, err = safefile.OpenRoot(base, d.access.Base); err != nil {
		return err
	}
	err = d.parent.Mkdir(d.job, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.made = err == nil
	if to := d.access.Job; d.made && to != d.access.Base {
		if err := d.parent.Lchown(d.job, int(to.UID), int(to.GID)); err != nil {
			return err
		}
	}
	if err := d.enter(); err != nil {
		return err
	}
	return d.openHeartbeats()
}

func (d *Dir) find(base string) (err error) {
	if d.parent, err = safefile.OpenRoot(base, d.access.Base); err != nil {
		return err
	}
	return d.enter()
}

func (d *Dir) enter() error {
	named, err := d.parent.Lstat(d.job)
	if err == nil && named.Mode()&(fs.ModeDir|fs.ModeSymlink) == 0 { // opening a FIFO would wait
		err = fmt.Errorf("%s is no directory", d.path)
	}
	if err != nil {
		return err
	}
	if d.root, err = d.parent.OpenRoot(d.job, d.access.Job); err != nil {
		return err
	}
	opened, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(named, opened) {
		return fmt.Errorf("%s is a symbolic link", d.path)
	}
	if err := d.root.Own(); err != nil {
		return err
	}
	return d.hold(opened)
}

// hold locks the directory against removal.
func (d *Dir) hold(opened fs.FileInfo) (err error) {
	if d.lock, err = d.root.OpenFile(".", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_SH); err != nil {
		return nil //nolint:nilerr // without locks, no process can take the directory for unused
	}
	if now, err := d.parent.Lstat(d.job); err != nil || !os.SameFile(now, opened) {
		return errRemoved
	}
	return nil
}

// Made reports whether this process made the directory.
func (d *Dir) Made() bool { return d.made }

// Create opens a file in the directory to append to, mode 0600.
func (d *Dir) Create(name string) (*os.File, error) {
	f, err := openLog(d.root, name)
	if err != nil {
		return nil, fmt.Errorf("open %s of job %s: %w", name, d.job, err)
	}
	return f, nil
}

// Root is the directory, for files beside the logs, until Close. It is nil without log files.
func (d *Dir) Root() *safefile.Root { return d.root }

// Path is absolute, and empty without log files.
func (d *Dir) Path() string { return d.path }

// Remove deletes the directory with the logs of all nodes that share it, and closes it. It renames
// the directory first, so that a new directory of the same name loses nothing.
func (d *Dir) Remove() error {
	if d.root == nil {
		return d.Close()
	}
	name := d.job + "." + rand.Text()[:8]
	if d.parent.Rename(d.job, name) != nil {
		name = d.job
	}
	if d.owner != nil { // NFS keeps an open file, and with it the directory
		_ = d.owner.Close()
		d.owner = nil
	}
	if err := d.parent.RemoveAll(name); err != nil {
		return errors.Join(fmt.Errorf("remove the log directory of job %s: %w", d.job, err), d.Close())
	}
	return d.Close()
}

// Close releases the directory. Its ranks and readers must be closed before.
func (d *Dir) Close() error {
	d.Done()
	var errs []error
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	if d.owner != nil {
		errs = append(errs, d.owner.Close())
		d.owner = nil
	}
	for _, root := range []*safefile.Root{d.beats, d.root, d.parent} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	return errors.Join(errs...)
}
