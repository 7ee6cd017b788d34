package stacks

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

const (
	maxTasks    = 4096    // threads of a process
	maxChildren = 64      // processes of a rank
	maxFile     = 8 << 20 // of a file in /proc, in bytes
)

var (
	errGone         = errors.New("the process has ended")
	errNotPermitted = errors.New("the process does not belong to the rank's user and group, or that user may not trace it (ptrace(2))")
)

// statOf returns the kernel's facts about a process that has not ended.
func statOf(pid int) (procfs.Stat, error) {
	st, ok := procfs.ReadStat(pid)
	if !ok || st.Dead() {
		return st, errGone
	}
	return st, nil
}

// permit refuses a process that the rank's user may not trace (ptrace(2)): one with a different
// user or group among its ids, or one that the kernel protects, such as a set-uid program. Files in
// /proc/PID of a protected process belong to root; the directory does not.
func permit(pid int, r *safefile.Rights) error {
	if r == nil {
		return nil
	}
	dir := "/proc/" + strconv.Itoa(pid)
	var mem unix.Stat_t
	if err := unix.Stat(dir+"/mem", &mem); err != nil {
		return errGone
	}
	text := readSmall(dir + "/status")
	if mem.Uid != r.UID || mem.Gid != r.GID || !allEqual(procfs.Field(text, "Uid"), r.UID) || !allEqual(procfs.Field(text, "Gid"), r.GID) {
		return errNotPermitted
	}
	return nil
}

// allEqual reports whether text has numbers, all equal to number.
func allEqual(text string, number uint32) bool {
	numbers := strings.Fields(text)
	other := func(n string) bool { return n != strconv.FormatUint(uint64(number), 10) }
	return len(numbers) > 0 && !slices.ContainsFunc(numbers, other)
}

// readSmall reads a small file of /proc; it returns nothing if the file may not be read.
func readSmall(path string) string {
	var buf [4096]byte
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(buf[:n]))
}

// readLarge reads a file of /proc of at most maxFile bytes.
func readLarge(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// entries returns the numbers in a directory of /proc.
func entries(dir string) (numbers []int) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(maxTasks)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// children returns the direct children of a process.
func children(pid int) (pids []int) {
	for _, tid := range entries(fmt.Sprintf("/proc/%d/task", pid)) {
		for child := range strings.FieldsSeq(readSmall(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid))) {
			if n, err := strconv.Atoi(child); err == nil && len(pids) < maxChildren {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// task returns the kernel's facts about a thread.
func task(pid, tid int) Thread {
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	t := Thread{TID: tid, Main: tid == pid}
	st, ok := procfs.ReadThread(pid, tid)
	if !ok {
		return t
	}
	t.Name, t.State = clean(st.Comm), string(st.State)
	if st.State == 'R' {
		return t
	}
	t.Call = callName(readSmall(dir + "syscall"))
	if wait := readSmall(dir + "wchan"); wait != "0" {
		t.Wait = clean(wait)
	}
	return t
}

// callName returns the name of a thread's system call; /proc has the number and the arguments of
// the call.
func callName(text string) string {
	number, _, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return ""
	}
	return cmp.Or(systemCalls[n], olderCalls[n], "system call "+number)
}

var systemCalls = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PREAD64: "pread", unix.SYS_PWRITE64: "pwrite",
	unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev", unix.SYS_RECVFROM: "recv", unix.SYS_RECVMSG: "recvmsg",
	unix.SYS_SENDTO: "send", unix.SYS_SENDMSG: "sendmsg", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect",
	unix.SYS_EPOLL_PWAIT: "epoll_wait", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_WAIT4: "wait", unix.SYS_WAITID: "wait", unix.SYS_IOCTL: "ioctl", unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT: "accept",
	unix.SYS_ACCEPT4: "accept", unix.SYS_OPENAT: "open", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_RT_SIGTIMEDWAIT: "sigwait", unix.SYS_RT_SIGSUSPEND: "sigsuspend",
	unix.SYS_SCHED_YIELD: "sched_yield", unix.SYS_MUNMAP: "munmap", unix.SYS_MMAP: "mmap", unix.SYS_EXIT_GROUP: "exit",
	unix.SYS_STATX: "stat", unix.SYS_GETDENTS64: "getdents", unix.SYS_SEMTIMEDOP: "semop", unix.SYS_RESTART_SYSCALL: "a call that goes on",
}

// numbers translates the kernel's thread numbers in the process's PID namespace to the numbers in
// this namespace. It is nil if they are the same.
func numbers(pid int, tids []int) map[int]int {
	if len(strings.Fields(procfs.Field(readSmall(fmt.Sprintf("/proc/%d/status", pid)), "NSpid"))) < 2 {
		return nil
	}
	inner := make(map[int]int, len(tids))
	for _, tid := range tids {
		known := strings.Fields(procfs.Field(readSmall(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid)), "NSpid"))
		if len(known) == 0 {
			continue
		}
		if n, err := strconv.Atoi(known[len(known)-1]); err == nil {
			inner[n] = tid
		}
	}
	return inner
}

// gone reports whether an error means that the process has ended.
func gone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGone)
}
