package procfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time by CLOCK_BOOTTIME, which advances while the machine sleeps and while
// this process is stopped.
func BootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("CLOCK_BOOTTIME, in Linux since 2.6.39: " + err.Error())
	}
	return time.Duration(t.Nano())
}
