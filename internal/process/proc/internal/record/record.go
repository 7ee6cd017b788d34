// Package record remembers on disk which processes a supervisor has, for the next supervisor.
package record

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// File is a record. With it, the next supervisor on this machine finds the processes that this
// supervisor leaves if it is killed together with its guardian. The supervisor holds a lock on the
// record, and its children do not: a record that can be locked belongs to a dead supervisor. The
// lock also keeps systemd-tmpfiles(8) away.
type File struct {
	Path string
	file *os.File
}

// Record says how to find the processes of a supervisor.
type Record struct {
	// Marker begins the variable that marks the processes.
	Marker string
	// Cgroup is the cgroup of the processes, or empty.
	Cgroup string
	Since  procfs.Epoch
	// PIDs is the PID namespace.
	PIDs string
}

// Base is where the users' directories with records are. It is the same for all commands of a user
// on a machine or in a container, no matter what their environment is.
var Base = "/tmp"

// StaleLimit bounds the wait for the end of the processes that an earlier supervisor has left. An
// agent waits longer for its keeper to start.
const StaleLimit = 30 * time.Second

// OpenDir opens the directory of this user's records.
func OpenDir() (*os.Root, error) {
	dir := filepath.Join(Base, "golaunch-"+strconv.Itoa(os.Getuid()))
	for _, dir := range []string{dir, filepath.Join(dir, ".ranks")} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := safefile.Path(dir); err != nil {
			return nil, err
		}
		root, err := safefile.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := safefile.Dir(root); err != nil {
			return nil, errors.Join(err, root.Close())
		}
		if filepath.Base(dir) == ".ranks" {
			return root, nil
		}
		if err := root.Close(); err != nil {
			return nil, err
		}
	}
	panic("unreachable")
}

// New makes a record. It returns nil if there is no place for a record.
func New(r Record) *File {
	dir, err := OpenDir()
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }() // it was only read
	r.PIDs = procfs.PIDNamespace()
	text, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	// If another supervisor reads the file before it is locked, it takes the file for the record of
	// a dead supervisor and removes it. So the file must be empty until it is locked.
	for range 100 {
		name := strconv.Itoa(os.Getpid()) + "-" + rand.Text()[:8]
		f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil
		}
		locked := lock(f, dir, name, unix.LOCK_EX)
		if locked {
			if _, err = f.Write(text); err == nil {
				return &File{Path: f.Name(), file: f}
			}
		}
		_ = errors.Join(f.Close(), dir.Remove(name))
		if locked {
			return nil
		}
	}
	return nil
}

// lock locks an open file, unless another process has locked or removed it.
func lock(f *os.File, dir *os.Root, name string, how int) bool {
	if unix.Flock(int(f.Fd()), how|unix.LOCK_NB) != nil {
		return false
	}
	opened, err := f.Stat()
	named, nameErr := dir.Lstat(name)
	return err == nil && nameErr == nil && os.SameFile(opened, named)
}

// Remove removes the record of a supervisor that leaves nothing. It does nothing to a nil File.
func (r *File) Remove() error {
	if r == nil {
		return nil
	}
	return errors.Join(cgroup.Gone(os.Remove(r.Path)), r.file.Close())
}

// EndStale ends all processes left by supervisors of this user that were killed together with their
// guardians. It returns when none of these processes lives.
func EndStale(deadline time.Time) error {
	dir, err := OpenDir()
	if err != nil {
		return nil // nothing was recorded there
	}
	defer func() { _ = dir.Close() }() // it was only read
	list, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, endStaleOne(dir, name, deadline))
	}
	return err
}

// endStaleOne shares the lock with other supervisors that end the same processes, so that each
// waits until none of them lives.
func endStaleOne(dir *os.Root, name string, deadline time.Time) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return cgroup.Gone(err)
	}
	defer f.Close()
	if !lock(f, dir, name, unix.LOCK_SH) || safefile.File(f) != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return err
	}
	var r Record
	if json.Unmarshal(text, &r) == nil && r.Marker != "" {
		end := r.end
		if r.PIDs != procfs.PIDNamespace() { // its processes are invisible here
			if _, err := os.Stat(r.Cgroup); err != nil {
				return nil
			}
			end = r.endGroup
		}
		if err := end(deadline); err != nil {
			return err
		}
	}
	return cgroup.Gone(dir.Remove(name))
}

// endGroup kills all processes in the cgroup, and removes the cgroup.
func (r Record) endGroup(deadline time.Time) error {
	if r.Cgroup == "" {
		return nil
	}
	return cmp.Or(cgroup.Kill(r.Cgroup), cgroup.AwaitEmpty(r.Cgroup, deadline), cgroup.Remove(r.Cgroup))
}

// end kills the remaining processes, except the ancestors of this process and their sessions.
func (r Record) end(deadline time.Time) error {
	if err := r.endGroup(deadline); err != nil {
		return err
	}
	// The cgroup may be invisible to this process, so look for the marks too.
	pids, sessions := lineage()
	left := sweep.Trail{Marker: r.Marker, Since: r.Since}
	marked := func(st procfs.Stat) bool { return !slices.Contains(pids, st.PID) && left.Owns(st) }
	// A process that has cleared its environment is found by its session, if the session also has a
	// marked process.
	all, err := left.Candidates()
	if err != nil {
		return fmt.Errorf("look for what an earlier golaunch has left: %w", err)
	}
	var found []int
	for _, pid := range all {
		if st, ok := procfs.ReadStat(pid); ok && !st.Dead() && marked(st) && !slices.Contains(sessions, st.Session) {
			found = append(found, st.Session)
		}
	}
	left.Sessions = found
	return sweep.Sweep(nil, &sweep.Unmarked{Match: marked, Since: r.Since}, deadline)
}

// lineage returns this process, its ancestors, and the sessions of them all.
func lineage() (pids, sessions []int) {
	for pid := os.Getpid(); pid > 0; {
		st, ok := procfs.ReadStat(pid)
		if !ok {
			break
		}
		pids, sessions = append(pids, pid), append(sessions, st.Session)
		pid = st.PPID
	}
	return pids, sessions
}
