package proc

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// homePrefix begins the name of every supervisor's cgroup, golaunch-PID-RANDOM.
const homePrefix = "golaunch-"

// mount is where a hierarchy of cgroups can be seen, and ours in it.
type mount struct {
	// point is the directory of the mount, own the directory of this process's cgroup in or below it.
	point, own string
}

// findMount finds the cgroup v2 mount (controller ""), or the v1 mount with a controller. On a hybrid machine there are both.
func findMount(controller string) (mount, bool) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return mount{}, false
	}
	knownMounts.Lock()
	defer knownMounts.Unlock()
	if knownMounts.cgroups != string(cgroups) {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return mount{}, false
		}
		knownMounts.cgroups, knownMounts.mounts = string(cgroups), hierarchies(string(mounts))
	}
	return parseMount(string(cgroups), knownMounts.mounts, controller)
}

// knownMounts are the mounts of cgroups, as of when this process came into its cgroups: a machine may have thousands of other mounts, and
// each attempt asks several times.
var knownMounts struct {
	sync.Mutex
	cgroups, mounts string
}

// hierarchies are the lines of mountinfo that a hierarchy of cgroups may have.
func hierarchies(mounts string) string {
	var found strings.Builder
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, " - cgroup") {
			found.WriteString(line)
		}
	}
	return found.String()
}

func parseMount(cgroups, mounts, controller string) (mount, bool) {
	path, ok := ownPath(cgroups, controller)
	if !ok {
		return mount{}, false
	}
	for line := range strings.Lines(mounts) {
		// ID PARENT DEVICE ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER-OPTIONS
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 || !isHierarchy(r[0], r[2], controller) {
			continue
		}
		if outside(l[3]) || outside(path) {
			continue
		}
		if rel, err := filepath.Rel(l[3], path); err == nil && filepath.IsLocal(rel) {
			return mount{point: l[4], own: filepath.Join(l[4], rel)}, true
		}
	}
	return mount{}, false
}

// outside says that a path leads out of the cgroup namespace of this process, where it would escape from the limits of its container.
func outside(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// ownPath reads /proc/self/cgroup: "0::/path" for v2, "4:memory:/path" for v1.
func ownPath(cgroups, controller string) (string, bool) {
	for line := range strings.Lines(cgroups) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) && (controller != "" || f[0] == "0") {
			return f[2], true
		}
	}
	return "", false
}

func isHierarchy(fstype, options, controller string) bool {
	if controller == "" {
		return fstype == "cgroup2"
	}
	return fstype == "cgroup" && slices.Contains(strings.Split(options, ","), controller)
}

// home is the cgroup of a supervisor.
type home struct{ dir string }

// makeHome makes a cgroup below this process's own one, and returns nil where that cannot be done or does not help: without
// permission, before Linux 5.14 (no cgroup.kill), or where clone3 is filtered.
func makeHome() *home {
	m, ok := findMount("")
	if !ok || unix.Access(filepath.Join(m.own, "cgroup.procs"), unix.W_OK) != nil {
		return nil
	}
	// A call without arguments is invalid where it is allowed.
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.EINVAL {
		return nil
	}
	h := &home{filepath.Join(m.own, homePrefix+strconv.Itoa(os.Getpid())+"-"+rand.Text()[:8])}
	if os.Mkdir(h.dir, 0o755) != nil {
		return nil
	}
	if unix.Access(filepath.Join(h.dir, "cgroup.kill"), unix.W_OK) != nil {
		_ = h.remove()
		return nil
	}
	return h
}

// Holds reports whether a cgroup holds all that ranks start here. Without one, what leaves its session and clears its environment is found
// as an orphan while this process lives, but no longer after kill -9.
func Holds() bool {
	h := makeHome()
	return h != nil && h.remove() == nil
}

// makeGroup makes the n-th cgroup in the home, with a plain name, and opens it.
func (h *home) makeGroup(n int, name string) (dir string, fd int, err error) {
	dir = filepath.Join(h.dir, fmt.Sprintf("%d-%s", n, name))
	if err = os.Mkdir(dir, 0o755); err != nil {
		return "", -1, fmt.Errorf("make a cgroup: %w", err)
	}
	if fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return "", -1, errors.Join(fmt.Errorf("open cgroup %s: %w", dir, err), os.Remove(dir))
	}
	return dir, fd, nil
}

// killGroup sends SIGKILL to everything in a cgroup and below it, also to what is being forked. A cgroup that is gone is empty.
func killGroup(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	return gone(err)
}

// setFrozen keeps everything in a cgroup and below it from running, or lets it go on (cgroup v2, since Linux 5.2).
func setFrozen(dir string, frozen bool) error {
	state := "0"
	if frozen {
		state = "1"
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(state), 0)
}

// awaitEmpty waits until no process is in the cgroup or below it.
func awaitEmpty(dir string, deadline time.Time) error {
	fd, err := unix.Open(filepath.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return gone(err)
	}
	// The kernel wakes who polls cgroup.events when "populated" changes.
	events := os.NewFile(uintptr(fd), "cgroup.events")
	defer events.Close()
	if err := events.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("wait for an empty cgroup %s: %w", dir, err)
	}
	var readErr error
	err = awaitFile(events, func(fd uintptr) bool {
		var buf [128]byte
		var n int
		n, readErr = unix.Pread(int(fd), buf[:], 0)
		return readErr != nil || bytes.Contains(buf[:n], []byte("populated 0"))
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return groupSurvivors(dir)
	default:
		return cmp.Or(err, gone(readErr))
	}
}

func groupSurvivors(dir string) error {
	pids, err := readNumbers(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return gone(err)
	}
	var left []handle
	for _, pid := range pids {
		left = append(left, handle{pid: pid})
	}
	return survivors(left)
}

// removeGroup removes an empty cgroup with the empty ones that ranks made below it.
func removeGroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return gone(err)
	})
	for _, d := range slices.Backward(dirs) {
		err = cmp.Or(err, gone(unix.Rmdir(d)))
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// remove removes the home, which must be empty.
func (h *home) remove() error { return removeGroup(h.dir) }

// gone takes the error of a cgroup that does not exist any more for success.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
