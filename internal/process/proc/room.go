package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// Room fails if a limit allows fewer new processes than the given number: pids.max of this cgroup
// or of one above it, or RLIMIT_NPROC of the processes' user, which counts threads and does not
// bind root. A limit that cannot be read counts as none.
func Room(processes int, of *safefile.Rights) error {
	if room, why := cgroup.ProcessRoom(); processes > room {
		return fmt.Errorf("%d ranks need as many processes, and this cgroup has room for %d (%s): raise it (docker run --pids-limit; TasksMax= of a systemd unit)",
			processes, room, why)
	}
	// Counting takes a while on a large machine, and is unnecessary if the limit is above this
	// number.
	const plenty = 16 << 10
	uid := os.Getuid()
	if of != nil {
		uid = int(of.UID)
	}
	var limit unix.Rlimit
	if known := unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil; !known || uid == 0 || limit.Cur > plenty {
		return nil
	}
	if used := procfs.ThreadsOf(uid); used+processes > int(limit.Cur) {
		return fmt.Errorf("%d ranks need as many processes, and uid %d has %d processes and threads already, and may have %d on this node: raise it (ulimit -u; LimitNPROC= of a systemd unit)",
			processes, uid, used, limit.Cur)
	}
	return nil
}

// Memory returns how many bytes new processes may use without making the kernel swap or kill: the
// available memory of /proc/meminfo, and no more than the limits of this cgroup and those above it
// leave. It returns 0 if unknown.
func Memory() int { return min(procfs.Available(), cgroup.MemoryRoom()) }
