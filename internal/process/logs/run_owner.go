package logs

import (
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
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// ownerFile is in each directory that belongs to one run, and names that run. Every process of the
// run holds a shared flock(2) on it, which the kernel releases when the last one ends. A process
// writes the file under an exclusive lock and then keeps a shared one.
//
// On a file system without locks, only the text decides: the owner lives if its machine has not
// booted since, and its pid still has the same start time. An owner on another machine counts as
// gone.
const ownerFile = ".owner"

// Owner is the process that took a directory for its run.
type Owner struct {
	// Run is the same for all processes of a run, and differs from all other runs.
	Run string
	// PID, Start (ticks since boot, proc_pid_stat(5)) and Boot, the machine's boot id, identify one
	// process for all time.
	PID         int
	Start, Boot string
	Host        string
	Since       time.Time
}

// NewRun makes a unique run.
func NewRun() string { return rand.Text() }

func self(run string) Owner {
	host, _ := os.Hostname() // for people
	return Owner{Run: run, PID: os.Getpid(), Start: startTicks(os.Getpid()), Boot: boot(), Host: host, Since: time.Now().Round(time.Second)}
}

func (o Owner) String() string {
	if o.PID == 0 {
		return "another run"
	}
	return fmt.Sprintf("another run (pid %d on %s, started %s)", o.PID, o.Host, o.Since.Local().Format(time.DateTime))
}

func (o Owner) lives() bool {
	return o.PID > 0 && o.Boot == boot() && o.Start != "" && o.Start == startTicks(o.PID)
}

func boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// startTicks returns the time at which a process started; empty if there is no such process.
func startTicks(pid int) string {
	st, ok := procfs.ReadStat(pid)
	if !ok {
		return ""
	}
	return strconv.FormatUint(st.Start, 10)
}

// TakenError means that another run has a directory.
type TakenError struct {
	Path  string
	Owner Owner
}

func (e *TakenError) Error() string { return fmt.Sprintf("%s is in use by %v", e.Path, e.Owner) }

// TakeBase makes a directory and its parents, mode 0700, and takes it for a run until the returned
// value is closed or this process ends. It fails with a [TakenError] while another run has it.
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

// TakeDir opens the log directory of a job as OpenDir does, and takes it for a run. No other run
// gets the directory until the last process of this run has closed it or ended. It fails with a
// [TakenError] while another run has it.
func (a Access) TakeDir(base, job, run string) (*Dir, error) {
	d, err := a.newDir(base, job, func(d *Dir, base string) error {
		if err := d.create(base); err != nil {
			return err
		}
		return d.take(run)
	})
	if taken, ok := errors.AsType[*TakenError](err); ok {
		return nil, taken
	}
	if err != nil {
		return nil, cannotOpen(job, base, err)
	}
	return d, nil
}

// TakeFree does what TakeDir does, for the first free directory among <job>, <job>.2, <job>.3 and
// so on.
func (a Access) TakeFree(base, job, run string) (*Dir, error) {
	d, err := a.TakeDir(base, job, run)
	for n := 2; n <= maxNamesakes && err != nil; n++ {
		if _, taken := errors.AsType[*TakenError](err); !taken {
			break
		}
		d, err = a.TakeDir(base, job+"."+strconv.Itoa(n), run)
	}
	return d, err
}

// maxNamesakes bounds the concurrent runs with one name.
const maxNamesakes = 1000

// take takes the directory for a run. The error is errRemoved if the directory was removed
// meanwhile.
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

// take takes a directory for a run until the returned value is closed.
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

// claim makes this process the owner, unless another process is. It returns the owner, with a
// shared lock on the file. A full disk stops no job, although an owner that could not be written
// keeps no other run out.
func claim(f *os.File, run string) Owner {
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		_ = write(f, self(run))
	case !errors.Is(err, unix.EWOULDBLOCK):
		return claimUnlocked(f, run)
	}
	// LOCK_SH waits only while another process writes the file. The kernel may release the
	// exclusive lock before it grants the shared one, so another process may have become the owner:
	// the text under the shared lock decides.
	if err := flock(f, unix.LOCK_SH); err != nil {
		return claimUnlocked(f, run)
	}
	return read(f)
}

// claimUnlocked does what claim does, on a file system without locks.
func claimUnlocked(f *os.File, run string) Owner {
	if o := read(f); o.Run == run || o.lives() {
		return o
	}
	_ = write(f, self(run))
	return Owner{Run: run}
}

// flock is a variable so that tests can simulate a file system without locks.
var flock = func(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

const maxOwner = 4096

// read returns the owner in the file, or none if it cannot be read.
func read(f *os.File) (o Owner) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxOwner))
	if err == nil {
		_ = json.Unmarshal(text, &o) // a torn file has no owner
	}
	return o
}

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
