package procfs

import "os"

// HostPIDs reports whether this process sees the machine's own pids. In a container, the NVIDIA
// driver may name processes by the machine's pids.
func HostPIDs() bool {
	const initial = "pid:[4026531836]" // PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
	of, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && of == initial
}
