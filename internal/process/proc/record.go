package proc

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
)

// record is a file by which the next supervisor on this machine finds what this one leaves when it is killed together with its guardian.
// The supervisor has it locked, and nothing that it starts does: a record that can be locked is that of a dead one. The lock also keeps
// systemd-tmpfiles(8) from it.
type record struct {
	path string
	file *os.File
}

// recorded is what a record says.
type recorded struct {
	// Marker begins the variable that marks the processes.
	Marker string
	// Cgroup holds them, unless it is empty.
	Cgroup string
	Since  Epoch
	// PIDs is the PID namespace.
	PIDs string
}

// recordBase is where the users' directories with records are: the same for all commands of a user on a machine or in a container, whatever
// their environment says.
var recordBase = "/tmp"

// staleLimit bounds the wait for the end of what an earlier supervisor has left. An agent waits longer for its keeper to begin.
const staleLimit = 30 * time.Second

// openRecords opens the directory of this user's records.
func openRecords() (*os.Root, error) {
	dir := filepath.Join(recordBase, "golaunch-"+strconv.Itoa(os.Getuid()))
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

// newRecord makes a record, or returns nil where there is no place for one.
func newRecord(r recorded) *record {
	dir, err := openRecords()
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }() // it was only read
	r.PIDs = pidNamespace()
	text, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	// Another supervisor that comes before the lock takes the file for that of a dead one and removes
	// it. It must not find in it what it would end.
	for range 100 {
		name := strconv.Itoa(os.Getpid()) + "-" + rand.Text()[:8]
		f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil
		}
		locked := lock(f, dir, name, unix.LOCK_EX)
		if locked {
			if _, err = f.Write(text); err == nil {
				return &record{path: f.Name(), file: f}
			}
		}
		_ = errors.Join(f.Close(), dir.Remove(name))
		if locked {
			return nil
		}
	}
	return nil
}

// lock locks an open file, unless somebody else has, or has removed it.
func lock(f *os.File, dir *os.Root, name string, how int) bool {
	if unix.Flock(int(f.Fd()), how|unix.LOCK_NB) != nil {
		return false
	}
	opened, err := f.Stat()
	named, nameErr := dir.Lstat(name)
	return err == nil && nameErr == nil && os.SameFile(opened, named)
}

// end removes the record of a supervisor that leaves nothing.
func (r *record) end() error {
	if r == nil {
		return nil
	}
	return errors.Join(gone(os.Remove(r.path)), r.file.Close())
}

func pidNamespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// endStale ends all that supervisors of this user have left which were killed together with their guardians, and returns when none of it
// lives.
func endStale(deadline time.Time) error {
	dir, err := openRecords()
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

// endStaleOne shares the lock with others who do the same: each is to wait until nothing lives.
func endStaleOne(dir *os.Root, name string, deadline time.Time) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return gone(err)
	}
	defer f.Close()
	if !lock(f, dir, name, unix.LOCK_SH) || safefile.File(f) != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return err
	}
	var r recorded
	if json.Unmarshal(text, &r) == nil && r.Marker != "" {
		end := r.end
		if r.PIDs != pidNamespace() { // its processes are not to be seen from here
			if _, err := os.Stat(r.Cgroup); err != nil {
				return nil
			}
			end = r.endGroup
		}
		if err := end(deadline); err != nil {
			return err
		}
	}
	return gone(dir.Remove(name))
}

// endGroup kills what is in the cgroup, and removes that.
func (r recorded) endGroup(deadline time.Time) error {
	if r.Cgroup == "" {
		return nil
	}
	return cmp.Or(killGroup(r.Cgroup), awaitEmpty(r.Cgroup, deadline), removeGroup(r.Cgroup))
}

// end kills what is left. What this process itself descends from is spared, with its sessions.
func (r recorded) end(deadline time.Time) error {
	if err := r.endGroup(deadline); err != nil {
		return err
	}
	// The cgroup may be where this process does not see it.
	pids, sessions := lineage()
	left := trail{marker: r.Marker, since: r.Since}
	marked := func(st stat) bool { return !slices.Contains(pids, st.pid) && left.owns(st) }
	// What has cleared its environment is in a session with others that have not, if it can be found.
	all, err := left.candidates()
	if err != nil {
		return fmt.Errorf("look for what an earlier golaunch has left: %w", err)
	}
	var found []int
	for _, pid := range all {
		if st, ok := readStat(pid); ok && !st.dead() && marked(st) && !slices.Contains(sessions, st.session) {
			found = append(found, st.session)
		}
	}
	left.sessions = found
	return sweep(nil, &unmarked{match: marked, since: r.Since}, deadline)
}

// lineage is this process and those that it descends from, and their sessions.
func lineage() (pids, sessions []int) {
	for pid := os.Getpid(); pid > 0; {
		st, ok := readStat(pid)
		if !ok {
			break
		}
		pids, sessions = append(pids, pid), append(sessions, st.session)
		pid = st.ppid
	}
	return pids, sessions
}
