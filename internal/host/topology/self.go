package topology

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of get_mempolicy(2), from linux/mempolicy.h.
const (
	mpolDefault     = 0
	mpolMemsAllowed = 4
)

// Self returns the CPUs and memory that this process may use now: the cpuset of its cgroup, or the
// part of it that taskset, Slurm or a container has left. If the kernel does not tell, Self returns
// nothing and a warning with the reason.
func Self() (u Use, warnings []Warning) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return u, []Warning{{CodeAffinity, fmt.Sprintf("the CPUs of this process are unknown: %v", err)}}
	}
	for cpu := range Limit {
		if cpus.IsSet(cpu) {
			u.CPUs.Add(cpu)
		}
	}
	// Containers without CAP_SYS_NICE may not ask (Docker's seccomp profile). They lose nothing:
	// the kernel's own policy keeps a bound thread's memory near its CPUs.
	mode, _, err := memoryPolicy(0)
	if err == nil {
		_, u.Memory, _ = memoryPolicy(mpolMemsAllowed)
	}
	u.Policed = mode != mpolDefault
	return u, nil
}

// memoryPolicy returns the memory policy of this thread, or the nodes that may be in a policy.
func memoryPolicy(flags uintptr) (mode int32, nodes Set, err error) {
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY,
		uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&nodes)), Limit+1, 0, flags, 0)
	if errno != 0 {
		return 0, Set{}, errno
	}
	return mode, nodes, nil
}
