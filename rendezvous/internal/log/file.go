package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// File keeps a log in a directory, for a coordinator that is started again.
//
// File hands entries to the kernel, so the death of the process loses none. It forces only some
// entries to the disk, such as the beginnings and ends of jobs, because only these must survive a
// power failure. The other entries concern ranks, and no rank is left when the machine has started
// again. File writes a snapshot to a new file beside the log, which it then renames. So there is
// always a complete log, the old one or the new one.
type File struct {
	root *os.Root
	lock *os.File
	log  *os.File
	jobs chan func()
	done chan struct{}
}

const (
	fileName = "log"
	// magic begins the file. It changes when the format of the frames changes.
	magic = "golaunch log 1\n"
	// snapshotMark and entryMark are the first byte of a frame's payload.
	snapshotMark, entryMark = 's', 'e'
)

// Past is what earlier coordinators have written into a log.
type Past struct {
	// Snapshot is nil if there was none. Entries follow the snapshot.
	Snapshot []byte
	Entries  [][]byte
	// Size is the size of snapshot and entries, in bytes. Torn is the number of bytes of an
	// unfinished frame at the end, which Past has cut off.
	Size, Torn int
}

// Open opens the log in a directory. It creates the directory at first use, with mode 0700. If
// another coordinator has the log open, the error says so.
func Open(dir string) (*File, error) {
	f := &File{jobs: make(chan func(), 1), done: make(chan struct{})}
	if err := f.open(dir); err != nil {
		return nil, fmt.Errorf("cannot open the coordinator's log in %s: %w", dir, errors.Join(err, f.release()))
	}
	go func() {
		defer close(f.done)
		for job := range f.jobs {
			job()
		}
	}()
	return f, nil
}

func (f *File) open(dir string) (err error) {
	if err := safefile.Path(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if f.root, err = safefile.Open(dir); err != nil {
		return err
	}
	if err := safefile.Dir(f.root); err != nil { // golaunch runs commands that it reads there
		return fmt.Errorf("%w, or name a directory below it, which golaunch makes", err)
	}
	if f.lock, err = f.openOwn("lock", os.O_CREATE|os.O_RDWR); err != nil {
		return err
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New("another coordinator uses it; stop that one, or give this one a directory of its own with --state-dir")
		}
		return fmt.Errorf("cannot lock it: %w", err)
	}
	if _, err := f.root.Stat("epoch"); err == nil {
		return errors.New("an earlier golaunch kept its jobs there; use the version that wrote it, or another --state-dir")
	}
	return nil
}

// openOwn opens a file and checks its owner, because another user may have put the file there while
// the directory was writable for a group.
func (f *File) openOwn(name string, flag int) (*os.File, error) {
	file, err := f.root.OpenFile(name, flag|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := safefile.File(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Close lets another coordinator open the log. It waits for a write under way.
func (f *File) Close() error {
	close(f.jobs)
	<-f.done
	return f.release()
}

func (f *File) release() (err error) {
	for _, file := range []*os.File{f.log, f.lock} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if f.root != nil {
		err = errors.Join(err, f.root.Close())
	}
	return err
}

func (f *File) path() string { return filepath.Join(f.root.Name(), fileName) }

// Past reads what was kept. It must be called once, before anything is kept. If a machine lost
// power during a write, Past cuts off the unfinished end of the file. Damage before the end is an
// error, because the entries after the damage may matter.
func (f *File) Past() (Past, error) {
	fail := func(err error) (Past, error) {
		return Past{}, fmt.Errorf("cannot read the coordinator's log %s: %w", f.path(), err)
	}
	var err error
	if f.log, err = f.openOwn(fileName, os.O_RDWR|os.O_APPEND); errors.Is(err, fs.ErrNotExist) {
		return Past{}, nil
	} else if err != nil {
		return fail(err)
	}
	text, err := io.ReadAll(f.log)
	if err != nil {
		return fail(err)
	}
	p, err := Parse(text)
	if err != nil {
		return fail(err)
	}
	if p.Torn > 0 {
		err = f.log.Truncate(int64(len(text) - p.Torn))
	}
	if err != nil {
		return fail(err)
	}
	return p, nil
}

var (
	errFormat = errors.New("another version of golaunch wrote it; use that version, or another --state-dir")
	errDamage = errors.New("it is damaged; with another --state-dir, or without this file, the coordinator starts with an empty log, and earlier jobs end")
)

// Parse reads the contents of a file.
func Parse(text []byte) (p Past, err error) {
	if n := min(len(text), len(magic)); string(text[:n]) != magic[:n] {
		return p, errFormat
	} else if n < len(magic) {
		return Past{Torn: len(text)}, nil
	}
	rest := text[len(magic):]
	for len(rest) > 0 {
		payload, next, ok := cutFrame(rest)
		switch {
		case !ok && soundAfter(rest):
			return p, fmt.Errorf("%w (at byte %d)", errDamage, len(text)-len(rest))
		case !ok:
			p.Torn = len(rest)
			return p, nil
		case len(payload) == 0:
			return p, errFormat
		case payload[0] == snapshotMark && p.Snapshot == nil && len(p.Entries) == 0:
			p.Snapshot = payload[1:]
		case payload[0] == entryMark:
			p.Entries = append(p.Entries, payload[1:])
		default:
			return p, errFormat
		}
		p.Size += len(payload)
		rest = next
	}
	return p, nil
}

// soundAfter reports whether a whole frame follows a damaged frame. No frame follows a frame whose
// write was interrupted, because the coordinator writes only at the end of the file.
func soundAfter(rest []byte) bool {
	for i := 1; i+frameHeader < len(rest); i++ {
		if mark := rest[i+frameHeader]; mark == entryMark || mark == snapshotMark {
			if payload, _, ok := cutFrame(rest[i:]); ok && len(payload) > 1 {
				return true
			}
		}
	}
	return false
}

// Shared returns false, because no other process keeps the log.
func (f *File) Shared() bool { return false }

// Confirm calls done at once: there is nothing to confirm.
func (f *File) Confirm(done func(error)) { done(nil) }

// Keep writes a round in the file's own goroutine. If a write without Firm fails, Keep removes the
// log, because a later coordinator would believe that the log is complete.
func (f *File) Keep(r Round, done func(error)) {
	f.jobs <- func() {
		err := f.write(r)
		if err != nil && !r.Firm {
			err = errors.Join(err, f.remove())
		}
		if err != nil {
			err = fmt.Errorf("cannot write %s: %w", f.path(), err)
		}
		done(err)
	}
}

func (f *File) write(r Round) error {
	var b []byte
	for _, e := range r.Entries {
		b = appendFrame(b, append([]byte{entryMark}, e...))
	}
	if r.Snapshot != nil || f.log == nil {
		return f.begin(r.Snapshot, b)
	}
	if _, err := f.log.Write(b); err != nil {
		return err
	}
	if r.Durable {
		return errors.Join(f.log.Sync(), f.sync())
	}
	return nil
}

// begin replaces the file with a new one: a snapshot, if there is one, and the frames of the
// entries after it. The old file stays until the new one is complete.
func (f *File) begin(snapshot, entries []byte) error {
	text := []byte(magic)
	if snapshot != nil {
		text = appendFrame(text, append([]byte{snapshotMark}, snapshot...))
	}
	text = append(text, entries...)
	fresh, err := f.openOwn(fileName+".new", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	if err = fresh.Truncate(0); err == nil {
		_, err = fresh.Write(text)
	}
	if err == nil {
		err = fresh.Sync()
	}
	if err == nil {
		err = f.root.Rename(fileName+".new", fileName)
	}
	if err != nil {
		return errors.Join(err, fresh.Close())
	}
	old := f.log
	f.log = fresh
	if old != nil {
		_ = old.Close() // the old file is not needed any more
	}
	return f.sync()
}

// sync forces the directory, which has the names of the files, to the disk.
func (f *File) sync() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *File) remove() (err error) {
	if f.log != nil {
		_ = f.log.Close() // the log is removed because of an error
		f.log = nil
	}
	for _, name := range []string{fileName, fileName + ".new"} {
		if e := f.root.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
