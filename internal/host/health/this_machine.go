package health

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// ThisMachine is this machine. Jobs write to dirs as well as to the directory of temporary files.
func ThisMachine(dirs ...string) System {
	return System{
		Root: os.DirFS("/"), Statfs: statfs, Limits: limits, Clock: clock, KernelLog: kernelLog, Getenv: os.LookupEnv,
		GPUs: gpu.Survey, Temp: os.TempDir(), Dirs: dirs,
	}
}

func statfs(path string) (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, err
	}
	block := uint64(s.Bsize)
	return Disk{
		Size: s.Blocks * block, Free: s.Bavail * block, Files: s.Files, Unused: s.Ffree, NoExec: s.Flags&unix.ST_NOEXEC != 0,
	}, nil
}

// limits returns hard limits where a process may raise its soft limit: the Go runtime raises the
// limit of open files for itself, but not for its children.
func limits() (l Limits) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil {
		l.Memlock = r.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		l.NoFile = r.Max
	}
	if unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && os.Getuid() != 0 { // fork(2): no limit holds for CAP_SYS_RESOURCE
		l.NProc = r.Cur
	}
	return l
}

func clock() Clock {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return Clock{}
	}
	const unsynchronized = 0x40 // STA_UNSYNC in linux/timex.h
	return Clock{Unsynchronized: t.Status&unsynchronized != 0, Error: time.Duration(t.Maxerror) * time.Microsecond}
}

// maxLog bounds the part of the kernel log that is read, from its end, in bytes. The usual log is
// smaller.
const maxLog = 1 << 20

func kernelLog() (string, error) {
	buf := make([]byte, maxLog)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
