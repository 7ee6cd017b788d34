// Package memlimit refuses an address space that is too small for Go's runtime.
package memlimit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// leastSpace is the address space, in bytes, below which Go's runtime may fail to start itself or a
// thread, and then die with a trace.
const leastSpace = 2 << 30

// Check says why the limit of address space (ulimit -v) is too low for golaunch; empty if the limit
// suffices. A build with cgo checks the limit before the runtime needs the space (limit_cgo.go).
func Check() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil || limit.Cur >= leastSpace {
		return ""
	}
	return fmt.Sprintf("the limit of address space (ulimit -v) is %d MiB, and golaunch needs %d: raise it, and limit memory with a cgroup instead",
		limit.Cur>>20, leastSpace>>20)
}
