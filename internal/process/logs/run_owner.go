package logs

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// ownerFile is in each directory that one run has for itself. It says who that is, and every
// process of the run holds a shared flock(2) on it: the kernel lets go of that with the life of the
// last of them, however it ends. The file is written under an exclusive lock, and only by a process
// that then goes on with a shared one.
//
// Where the file system has no locks, the words decide alone: the owner lives if its machine has
// not booted since, and its pid is still that of a process with the same start time. Of an owner on
// another machine nothing is known there, and the directory is taken from it.
const ownerFile = ".owner"

// Owner is the process that took a directory for its run.
type Owner struct {
	// Run is the same for all processes of a run, and for no others.
	Run string
	// PID, Start (in ticks since boot, proc_pid_stat(5)) and Boot, the machine's, name one process
	// for all time.
	PID         int
	Start, Boot string
	Host        string
	Since       time.Time
}

// NewRun names a run that no other process belongs to.
func NewRun() string { return rand.Text() }

func self(run string) Owner {
	host, _ := os.Hostname() // for people
	return Owner{Run: run, PID: os.Getpid(), Start: startOf(os.Getpid()), Boot: boot(), Host: host, Since: time.Now().Round(time.Second)}
}

func (o Owner) String() string {
	if o.PID == 0 {
		return "another run"
	}
	return fmt.Sprintf("another run (pid %d on %s, started %s)", o.PID, o.Host, o.Since.Local().Format(time.DateTime))
}

// lives reports whether the process runs on this machine.
func (o Owner) lives() bool {
	return o.PID > 0 && o.Boot == boot() && o.Start != "" && o.Start == startOf(o.PID)
}

func boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// startOf is when a process started; empty if there is none.
func startOf(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	const start = 22 - 3 // what follows the name is field 3
	if fields := strings.Fields(after); len(fields) > start {
		return fields[start]
	}
	return ""
}

// TakenError says that another run has a directory.
type TakenError struct {
	Path  string
	Owner Owner
}

func (e *TakenError) Error() string { return fmt.Sprintf("%s is in use by %v", e.Path, e.Owner) }

// TakeBase makes a directory, and base where it is missing, mode 0700, and takes it for a run until
// the returned value is closed or this process ends. It fails with a [TakenError] while another run
// has it.
func TakeBase(dir, run string) (io.Closer, error) {
	if err := safefile.Path(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := safefile.OpenRoot(dir, nil)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.Own(); err != nil {
		return nil, err
	}
	return take(root, run)
}

// TakeDir is OpenDir for a run, which has the directory for itself until its last process has
// closed it or ended. It fails with a [TakenError] while another run has it.
func (w Whose) TakeDir(base, job, run string) (*Dir, error) {
	d, err := w.newDir(base, job, func(d *Dir, base string) error {
		if err := d.create(base); err != nil {
			return err
		}
		return d.take(run)
	})
	if taken, ok := errors.AsType[*TakenError](err); ok {
		return nil, taken
	}
	if err != nil {
		return nil, fmt.Errorf("open the log directory of job %s in %s: %w (choose another with --log-dir)", job, base, err)
	}
	return d, nil
}

// TakeFree is TakeDir of the first directory that no other run has: <job>, <job>.2, <job>.3 and so
// on.
func (w Whose) TakeFree(base, job, run string) (*Dir, error) {
	d, err := w.TakeDir(base, job, run)
	for n := 2; n <= maxNamesakes && err != nil; n++ {
		if _, taken := errors.AsType[*TakenError](err); !taken {
			break
		}
		d, err = w.TakeDir(base, job+"."+strconv.Itoa(n), run)
	}
	return d, err
}

// maxNamesakes bounds the runs with one name at a time.
const maxNamesakes = 1000

// take takes the directory for a run. What another process removes meanwhile is opened again.
func (d *Dir) take(run string) (err error) {
	d.owner, err = take(d.root, run)
	if _, taken := errors.AsType[*TakenError](err); err != nil && !taken && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	opened, statErr := d.root.Stat(".")
	if now, nowErr := d.parent.Lstat(d.job); statErr != nil || nowErr != nil || !os.SameFile(now, opened) {
		return errRemoved
	}
	return err
}

// take returns what holds the directory for a run.
func take(dir *safefile.Root, run string) (io.Closer, error) {
	f, err := dir.OpenOwn(ownerFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if owner := claim(f, run); owner.Run != run && owner.Run != "" {
		return nil, errors.Join(&TakenError{filepath.Clean(dir.Name()), owner}, f.Close())
	}
	return f, nil
}

// claim makes this process the owner unless another one is, holds the lock, and returns who is the
// owner. A full disk stops no job: of an owner that could not be written nothing is known, and he
// refuses nobody.
func claim(f *os.File, run string) Owner {
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		_ = write(f, self(run))
	case !errors.Is(err, unix.EWOULDBLOCK):
		return claimUnlocked(f, run)
	}
	// This waits for who has the file for himself only while he writes it. The kernel may give an
	// exclusive lock back before the shared one is there, so that another process may have become
	// the owner meanwhile: what the file says under the shared lock decides.
	if err := flock(f, unix.LOCK_SH); err != nil {
		return claimUnlocked(f, run)
	}
	return read(f)
}

// claimUnlocked is claim where the file system has no locks.
func claimUnlocked(f *os.File, run string) Owner {
	if o := read(f); o.Run == run || o.lives() {
		return o
	}
	_ = write(f, self(run))
	return Owner{Run: run}
}

// flock is a variable for tests of file systems without locks.
var flock = func(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// maxOwner bounds what is read of the file, in bytes.
const maxOwner = 4096

// read returns the owner as the file has it; none if that cannot be read.
func read(f *os.File) (o Owner) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxOwner))
	if err == nil {
		_ = json.Unmarshal(text, &o) // what is torn names nobody
	}
	return o
}

// write has the file say who the owner is.
func write(f *os.File, o Owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}
