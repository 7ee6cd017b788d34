package proc

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// Room says that fewer processes than some can be started from here, for want of what limits them: pids.max of this cgroup or one above it,
// or the number of processes and threads that their user may have (RLIMIT_NPROC, which binds no root). What cannot be read limits nothing.
func Room(processes int, of *safefile.Rights) error {
	if room, why := cgroupRoom(); processes > room {
		return fmt.Errorf("%d ranks need as many processes, and this cgroup has room for %d (%s): raise it (docker run --pids-limit; TasksMax= of a systemd unit)",
			processes, room, why)
	}
	// Counting takes a while on a large machine, and nobody has so many processes by the way.
	const plenty = 16 << 10
	uid := os.Getuid()
	if of != nil {
		uid = int(of.UID)
	}
	var limit unix.Rlimit
	if known := unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil; !known || uid == 0 || limit.Cur > plenty {
		return nil
	}
	if used := threadsOf(uid); used+processes > int(limit.Cur) {
		return fmt.Errorf("%d ranks need as many processes, and uid %d has %d processes and threads already, and may have %d on this node: raise it (ulimit -u; LimitNPROC= of a systemd unit)",
			processes, uid, used, limit.Cur)
	}
	return nil
}

// cgroupRoom is how many processes more may be in this cgroup, and what says so.
func cgroupRoom() (room int, why string) {
	room = math.MaxInt
	for _, controller := range []string{"", "pids"} {
		m, ok := findMount(controller)
		for dir := m.own; ok; dir = filepath.Dir(dir) {
			limit, is := number(filepath.Join(dir, "pids.max")) // "max" is none
			if used, known := number(filepath.Join(dir, "pids.current")); is && known && max(0, limit-used) < room {
				room, why = max(0, limit-used), fmt.Sprintf("pids.max of %s is %d", dir, limit)
			}
			ok = dir != m.point && len(dir) > 1
		}
	}
	return room, why
}

func number(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// threadsOf counts the threads of a user, as RLIMIT_NPROC does.
func threadsOf(uid int) (n int) {
	pids, _ := processes(Epoch{}, nil)
	for _, pid := range pids {
		var st unix.Stat_t
		dir := fmt.Sprintf("/proc/%d", pid)
		if unix.Stat(dir, &st) != nil || int(st.Uid) != uid {
			continue
		}
		if tasks, err := os.ReadDir(dir + "/task"); err == nil {
			n += len(tasks)
		}
	}
	return n
}
