package procfs

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Epoch is a moment of this machine that divides older processes from younger ones. Linux hands out
// process numbers in turn and begins again at the end (idr_alloc_cyclic), so a number alone may
// prove that its process is older. golaunch then searches few processes for the descendants of a
// rank, even if the machine has many.
type Epoch struct {
	// At is the time of the moment, by [BootTime].
	At time.Duration
	// Last is the newest process number; 0 where the kernel does not say. Forks is the number of
	// processes and threads that the machine has started. Threads is the number of living processes
	// and threads: the kernel skips their numbers.
	Last           int
	Forks, Threads uint64
}

// NewEpoch returns the epoch that begins now.
func NewEpoch() Epoch {
	e := Epoch{At: BootTime()}
	for line := range strings.Lines(readKernel("/proc/stat")) {
		if forks, ok := strings.CutPrefix(line, "processes "); ok {
			e.Forks, _ = strconv.ParseUint(strings.TrimSpace(forks), 10, 64)
		}
	}
	// LOAD LOAD LOAD RUNNABLE/THREADS LAST, of this PID namespace (proc_loadavg(5))
	words := strings.Fields(readKernel("/proc/loadavg"))
	if len(words) != 5 || e.Forks == 0 {
		return e
	}
	_, threads, _ := strings.Cut(words[3], "/")
	e.Threads, _ = strconv.ParseUint(threads, 10, 64)
	e.Last, _ = strconv.Atoi(words[4])
	return e
}

// readKernel reads a file of /proc, unless another file system, such as lxcfs in a container, has
// replaced it.
func readKernel(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return ""
	}
	text, err := io.ReadAll(f) // the kernel writes all of it at the first read
	if err != nil {
		return ""
	}
	return string(text)
}

const (
	// reservedPIDs is where the kernel's numbers begin again after the highest (RESERVED_PIDS in
	// kernel/pid.c).
	reservedPIDs = 300
	// epochSlack is a margin for processes that start while an epoch is read.
	epochSlack = 1000
)

// filter returns the numbers that a process younger than the epoch may have. It returns all numbers
// if it cannot determine them, or if the number of a process that is known to be younger is missing
// among them.
func (e Epoch) filter(pids, younger []int) []int {
	limit, _ := ReadNumber("/proc/sys/kernel/pid_max")
	may := e.younger(NewEpoch(), limit)
	if may == nil || slices.ContainsFunc(younger, func(pid int) bool { return !may(pid) }) {
		return pids
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return !may(pid) })
}

// younger reports which numbers below a limit the kernel may have handed out from e until now. It
// returns nil if all numbers are possible: the numbers have begun again, or they have advanced by
// more than the started processes explain.
func (e Epoch) younger(now Epoch, limit int) func(pid int) bool {
	if e.Last == 0 || now.Last == 0 || now.Forks < e.Forks {
		return nil
	}
	advance := now.Last - e.Last
	if advance < 0 {
		advance += limit - reservedPIDs
	}
	most := now.Forks - e.Forks + e.Threads + epochSlack
	if most+reservedPIDs >= uint64(limit) || uint64(advance) > most {
		return nil
	}
	if e.Last <= now.Last {
		return func(pid int) bool { return e.Last < pid && pid <= now.Last }
	}
	return func(pid int) bool { return e.Last < pid || pid <= now.Last }
}

// Older reports whether a process is older than the epoch.
func (e Epoch) Older(st Stat) bool { return time.Duration(st.Start)*Tick < e.At-2*Tick }
