package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// marked lists the processes that have a variable, NAME=VALUE, in their environment, except this
// process.
func marked(variable string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			continue // it may have ended
		}
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill ends all processes that have a variable in their environment, and waits until they have
// ended.
func kill(variable string) error {
	for until := time.Now().Add(ending); ; {
		pids := marked(variable)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the processes %v have been killed and do not end", pids)
		}
		for _, pid := range pids {
			if err := killIf(pid, variable); err != nil {
				return err
			}
		}
	}
}

// killIf kills a process if it is still the same one, and waits until it has ended.
func killIf(pid int, variable string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
		return nil // it has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(ending.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// running lists the processes of a program.
func running(program string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == program {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// memory returns the memory of processes in bytes. Each of n processes that share a page has 1/n of
// it (PSS).
func memory(pids []int) (bytes float64) {
	for _, pid := range pids {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // it may have ended
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); f[0] == "Pss:" {
				kilobytes, _ := strconv.ParseFloat(f[1], 64)
				bytes += kilobytes * 1024
			}
		}
	}
	return bytes
}

// parent returns the parent of a process; 0 if it has ended.
func parent(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	id, _ := strconv.Atoi(f[1])
	return id
}
