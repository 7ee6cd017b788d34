package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// machine describes this machine, and how busy it is when the run begins.
func machine() record.Machine {
	var name unix.Utsname
	kernel := ""
	if unix.Uname(&name) == nil {
		kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal:"), " kB"), 10, 64)
	return record.Machine{
		CPU: strings.TrimPrefix(field("/proc/cpuinfo", "model name"), ": "), Cores: runtime.NumCPU(), MemoryBytes: kilobytes << 10, Kernel: kernel,
		OS: strings.Trim(field("/etc/os-release", "PRETTY_NAME="), `"`), Load: load(),
	}
}

// field returns what follows a prefix in a line of a file; empty if there is no such line.
func field(file, prefix string) string {
	text, _ := os.ReadFile(file) // an unreadable file has no such line
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// load is the load average of the last minute.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg") // Linux has this file
	first, _, _ := strings.Cut(string(text), " ")
	average, _ := strconv.ParseFloat(first, 64)
	return average
}

// ticks are the time of all cores since the machine was started, and the part of it that a
// hypervisor gave to others.
func ticks() (all, stolen float64) {
	f := strings.Fields(field("/proc/stat", "cpu "))
	for i, text := range f[:min(8, len(f))] { // the later fields are part of these
		n, _ := strconv.ParseFloat(text, 64)
		all += n
		if i == 7 {
			stolen = n
		}
	}
	return all, stolen
}
