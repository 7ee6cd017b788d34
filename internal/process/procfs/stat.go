// Package procfs reads /proc.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stat has the values of /proc/PID/stat.
type Stat struct {
	PID, PPID, Group, Session int
	Comm                      string
	State                     byte
	// Ticks is the processor time in units of Tick. Faults is the number of page faults that needed
	// no disk. Both include children that were reaped.
	Ticks, Faults uint64
	// Pages is the number of pages in memory, shared pages included.
	Pages uint64
	// Start is the time from the machine's start to the start of the process, in units of Tick.
	Start uint64
}

// Tick is the unit of processor time in /proc: USER_HZ is 100 on all of Linux's GPU platforms.
const Tick = 10 * time.Millisecond

// Dead reports whether nothing of the process runs any more.
func (st Stat) Dead() bool { return st.State == 'Z' || st.State == 'X' }

func (st Stat) String() string { return fmt.Sprintf("%d (%s, state %c)", st.PID, st.Comm, st.State) }

// ReadStat reads the Stat of a process. It returns false if there is no such process.
func ReadStat(pid int) (Stat, bool) { return readStat(pid, "/proc/"+strconv.Itoa(pid)+"/stat") }

// ReadThread does what ReadStat does, for a thread. The PID of its Stat is the thread's number.
func ReadThread(pid, tid int) (Stat, bool) {
	return readStat(tid, "/proc/"+strconv.Itoa(pid)+"/task/"+strconv.Itoa(tid)+"/stat")
}

func readStat(pid int, path string) (Stat, bool) {
	var buf [512]byte
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Stat{}, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return Stat{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat reads "PID (COMM) STATE PPID PGRP SESSION ...". COMM may contain any character
// (proc_pid_stat(5)).
func parseStat(pid int, line []byte) (Stat, bool) {
	from, to := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return Stat{}, false
	}
	fields := bytes.Fields(line[to+1:])
	if len(fields) < 4 {
		return Stat{}, false
	}
	st := Stat{PID: pid, Comm: string(line[from+1 : to]), State: fields[0][0]}
	for i, number := range []*int{&st.PPID, &st.Group, &st.Session} {
		var err error
		if *number, err = strconv.Atoi(string(fields[i+1])); err != nil {
			return Stat{}, false
		}
	}
	// Fields count from 3, STATE: minflt is 10, cminflt 11, utime, stime, cutime and cstime are 14
	// to 17, starttime is 22, rss is 24.
	st.Faults, st.Ticks, st.Start, st.Pages = sum(fields, 10, 11), sum(fields, 14, 17), sum(fields, 22, 22), sum(fields, 24, 24)
	return st, true
}

// sum adds the fields from first to last.
func sum(fields [][]byte, first, last int) (total uint64) {
	for i := first - 3; i <= last-3 && i < len(fields); i++ {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return 0
		}
		total += n
	}
	return total
}

// Environ returns the environment of a process's last exec; nil if this user may not read it.
func Environ(pid int) []byte {
	env, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}

// Status returns a line of /proc/PID/status without its name; "" if there is none.
func Status(pid int, name string) string {
	text, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	return Field(string(text), name)
}

// Field returns a line of the text of a status file without its name; "" if there is none.
func Field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Transferred returns how many bytes a process has read and written (rchar and wchar of
// /proc/PID/io); 0 if this user may not know.
func Transferred(pid int) (total uint64) {
	text, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, number, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if string(name) != "rchar" && string(name) != "wchar" {
			continue
		}
		n, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			return 0
		}
		total += n
	}
	return total
}

// Processes returns the numbers of all processes that may be younger than an epoch. The given
// processes are known to be younger.
func Processes(since Epoch, younger []int) ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return since.filter(Numbers(names), younger), nil
}

// ThreadsOf counts the threads of a user, as RLIMIT_NPROC does.
func ThreadsOf(uid int) (n int) {
	pids, _ := Processes(Epoch{}, nil)
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

// Numbers returns the words that are numbers.
func Numbers(words []string) []int {
	var pids []int
	for _, w := range words {
		if pid, err := strconv.Atoi(w); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ReadNumbers reads a file of numbers, such as cgroup.procs.
func ReadNumbers(path string) ([]int, error) {
	text, err := ReadFile(path)
	return Numbers(strings.Fields(string(text))), err
}

// ReadNumber reads a file with one number.
func ReadNumber(path string) (int, bool) {
	text, err := ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// Available returns how many bytes of memory new programs may use without swapping (MemAvailable,
// proc_meminfo(5)), or 0 if unknown.
func Available() int {
	text, err := ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if number, is := strings.CutPrefix(line, "MemAvailable:"); is {
			kilobytes, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(number), " kB"))
			return kilobytes << 10
		}
	}
	return 0
}

// PIDNamespace names this process's PID namespace.
func PIDNamespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}
