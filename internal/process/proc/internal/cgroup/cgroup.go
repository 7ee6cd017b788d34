// Package cgroup makes, empties and removes the cgroups of ranks.
package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

// homePrefix begins the name of every supervisor's cgroup, golaunch-PID-RANDOM.
const homePrefix = "golaunch-"

// Mount is where a hierarchy of cgroups is mounted.
type Mount struct {
	// Point is the directory of the mount, Own the directory of this process's cgroup in or below
	// it.
	Point, Own string
}

// FindMount finds the cgroup v2 mount (controller ""), or the v1 mount with a controller. A hybrid
// machine has both.
func FindMount(controller string) (Mount, bool) {
	cgroups, err := procfs.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Mount{}, false
	}
	knownMounts.Lock()
	defer knownMounts.Unlock()
	if knownMounts.cgroups != string(cgroups) {
		mounts, err := procfs.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return Mount{}, false
		}
		knownMounts.cgroups, knownMounts.mounts = string(cgroups), hierarchies(string(mounts))
	}
	return parseMount(string(cgroups), knownMounts.mounts, controller)
}

// knownMounts keeps the cgroup mounts until this process moves to other cgroups. A machine may have
// thousands of other mounts, and each attempt asks for the cgroup mounts several times.
var knownMounts struct {
	sync.Mutex
	cgroups, mounts string
}

// hierarchies returns the lines of mountinfo that may be cgroup mounts.
func hierarchies(mounts string) string {
	var found strings.Builder
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, " - cgroup") {
			found.WriteString(line)
		}
	}
	return found.String()
}

func parseMount(cgroups, mounts, controller string) (Mount, bool) {
	own, ok := ownPath(cgroups, controller)
	if !ok {
		return Mount{}, false
	}
	for line := range strings.Lines(mounts) {
		// ID PARENT DEVICE ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER-OPTIONS
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 || !isHierarchy(r[0], r[2], controller) {
			continue
		}
		if outside(l[3]) || outside(own) {
			continue
		}
		if below, ok := strings.CutPrefix(own+"/", strings.TrimSuffix(l[3], "/")+"/"); ok {
			return Mount{Point: l[4], Own: path.Join(l[4], below)}, true
		}
	}
	return Mount{}, false
}

// outside reports whether a path leads out of this process's cgroup namespace, and so out of the
// limits of its container.
func outside(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "..") }

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

// Home is the cgroup of a supervisor.
type Home struct{ Dir string }

// MakeHome makes a cgroup below this process's own. It returns nil where such a cgroup is
// impossible or useless: without permission, before Linux 5.14 (no cgroup.kill), or where clone3 is
// filtered.
func MakeHome() *Home {
	m, ok := FindMount("")
	if !ok || unix.Access(path.Join(m.Own, "cgroup.procs"), unix.W_OK) != nil {
		return nil
	}
	// Where clone3 is allowed, the kernel refuses a call without arguments as invalid.
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.EINVAL {
		return nil
	}
	// The name must differ only from the name of a supervisor's cgroup in another PID namespace.
	// Package crypto/rand would make the guardian start later, see helper/spawn.
	h := &Home{path.Join(m.Own, fmt.Sprintf("%s%d-%010x", homePrefix, os.Getpid(), rand.Uint64()>>24))}
	if os.Mkdir(h.Dir, 0o755) != nil {
		return nil
	}
	if unix.Access(path.Join(h.Dir, "cgroup.kill"), unix.W_OK) != nil {
		_ = h.Remove()
		return nil
	}
	return h
}

// Usable reports whether MakeHome works here.
func Usable() bool {
	h := MakeHome()
	return h != nil && h.Remove() == nil
}

// Make makes the n-th cgroup in the home, with a plain name, and opens it. It makes the home again
// if the home is gone: while no rank runs, the home is an empty cgroup, which other programs may
// remove.
func (h *Home) Make(n int, name string) (dir string, fd int, err error) {
	dir = path.Join(h.Dir, fmt.Sprintf("%d-%s", n, name))
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return "", -1, fmt.Errorf("make a cgroup: %w", err)
	}
	if fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return "", -1, errors.Join(fmt.Errorf("open cgroup %s: %w", dir, err), os.Remove(dir))
	}
	return dir, fd, nil
}

// Kill sends SIGKILL to everything in a cgroup and below it, even to processes that are being
// forked. A removed cgroup is empty.
func Kill(dir string) error {
	err := os.WriteFile(path.Join(dir, "cgroup.kill"), []byte("1"), 0)
	return Gone(err)
}

// SetFrozen stops everything in a cgroup and below it, or lets it continue (cgroup v2, since Linux
// 5.2).
func SetFrozen(dir string, frozen bool) error {
	state := "0"
	if frozen {
		state = "1"
	}
	return os.WriteFile(path.Join(dir, "cgroup.freeze"), []byte(state), 0)
}

// AwaitEmpty waits until no process is in the cgroup or below it.
func AwaitEmpty(dir string, deadline time.Time) error {
	fd, err := unix.Open(path.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Gone(err)
	}
	// The kernel wakes pollers of cgroup.events when "populated" changes.
	events := os.NewFile(uintptr(fd), "cgroup.events")
	defer events.Close()
	if err := events.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("wait for an empty cgroup %s: %w", dir, err)
	}
	var readErr error
	err = procfs.AwaitFile(events, func(fd uintptr) bool {
		var buf [128]byte
		var n int
		n, readErr = unix.Pread(int(fd), buf[:], 0)
		return readErr != nil || bytes.Contains(buf[:n], []byte("populated 0"))
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return survivors(dir)
	default:
		return cmp.Or(err, Gone(readErr))
	}
}

func survivors(dir string) error {
	pids, err := procfs.ReadNumbers(path.Join(dir, "cgroup.procs"))
	if err != nil {
		return Gone(err)
	}
	var left []procfs.Handle
	for _, pid := range pids {
		left = append(left, procfs.Handle{PID: pid})
	}
	return procfs.Survivors(left)
}

// Remove removes an empty cgroup with the empty ones that ranks made below it.
func Remove(dir string) error {
	var dirs []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path.Join(dir, name))
		}
		return Gone(err)
	})
	for _, d := range slices.Backward(dirs) {
		err = cmp.Or(err, Gone(unix.Rmdir(d)))
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// Remove removes the home, which must be empty.
func (h *Home) Remove() error { return Remove(h.Dir) }

// Gone treats the error that a cgroup does not exist any more as success.
func Gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// ProcessRoom returns how many more processes this cgroup and those above it allow, and names the
// tightest limit.
func ProcessRoom() (room int, why string) {
	return least("pids", "pids.max", func(dir string) (int, bool) { return procfs.ReadNumber(path.Join(dir, "pids.current")) })
}

// MemoryRoom returns how many more bytes of memory this cgroup and those above it allow. Pages of
// files that were not used lately count as room, because the kernel can drop them.
func MemoryRoom() int {
	bytes, _ := least("memory", "memory.max", func(dir string) (int, bool) {
		used, ok := procfs.ReadNumber(path.Join(dir, "memory.current"))
		stat, err := procfs.ReadFile(path.Join(dir, "memory.stat"))
		if err != nil {
			return used, ok
		}
		for line := range strings.Lines(string(stat)) {
			if number, is := strings.CutPrefix(line, "inactive_file "); is {
				if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
					used -= n
				}
			}
		}
		return used, ok
	})
	return bytes
}

// least returns the least amount that a limit leaves, in this cgroup and those above it.
func least(controller, limit string, used func(dir string) (int, bool)) (room int, why string) {
	room = math.MaxInt
	for _, controller := range []string{"", controller} {
		m, ok := FindMount(controller)
		for dir := m.Own; ok; dir = path.Dir(dir) {
			if most, is := procfs.ReadNumber(path.Join(dir, limit)); is { // "max" is no limit
				if n, known := used(dir); known && max(0, most-n) < room {
					room, why = max(0, most-n), fmt.Sprintf("%s of %s is %d", limit, dir, most)
				}
			}
			ok = dir != m.Point && len(dir) > 1
		}
	}
	return room, why
}
