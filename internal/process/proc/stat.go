package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stat is what /proc/PID/stat says of a process.
type stat struct {
	pid, ppid, group, session int
	comm                      string
	state                     byte
	// ticks are USER_HZ of processor time, and faults those that needed no disk; both have those of children that were reaped.
	ticks, faults uint64
	// pages are in memory, shared ones too.
	pages uint64
	// start is when the process began, in USER_HZ since the machine did.
	start uint64
}

// dead reports whether nothing of the process runs any more.
func (st stat) dead() bool { return st.state == 'Z' || st.state == 'X' }

func (st stat) String() string { return fmt.Sprintf("%d (%s, state %c)", st.pid, st.comm, st.state) }

// readStat fails when there is no such process.
func readStat(pid int) (stat, bool) {
	var buf [512]byte
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return stat{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat reads "PID (COMM) STATE PPID PGRP SESSION ...", where COMM may have any character in it (proc_pid_stat(5)).
func parseStat(pid int, line []byte) (stat, bool) {
	from, to := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return stat{}, false
	}
	fields := bytes.Fields(line[to+1:])
	if len(fields) < 4 {
		return stat{}, false
	}
	st := stat{pid: pid, comm: string(line[from+1 : to]), state: fields[0][0]}
	for i, number := range []*int{&st.ppid, &st.group, &st.session} {
		var err error
		if *number, err = strconv.Atoi(string(fields[i+1])); err != nil {
			return stat{}, false
		}
	}
	// Fields count from 3, STATE: minflt is 10, cminflt 11, utime, stime, cutime and cstime are 14 to 17, starttime is 22, rss is 24.
	st.faults, st.ticks, st.start, st.pages = sum(fields, 10, 11), sum(fields, 14, 17), sum(fields, 22, 22), sum(fields, 24, 24)
	return st, true
}

// sum adds the fields of that many numbers, the last included.
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

// environ is the environment with which a process was last executed; empty when it is not ours to read.
func environ(pid int) []byte {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}

// processes lists the numbers of all processes that may be younger than an epoch, as some processes are.
func processes(since Epoch, younger []int) ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return since.since(numbers(names), younger), nil
}

// numbers keeps what is a number.
func numbers(words []string) []int {
	var pids []int
	for _, w := range words {
		if pid, err := strconv.Atoi(w); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// readNumbers reads a file of numbers, such as cgroup.procs.
func readNumbers(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	return numbers(strings.Fields(string(text))), err
}
