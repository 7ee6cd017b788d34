package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time by CLOCK_BOOTTIME, which goes on while the machine sleeps or this process is stopped.
func BootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("CLOCK_BOOTTIME, in Linux since 2.6.39: " + err.Error())
	}
	return time.Duration(t.Nano())
}
