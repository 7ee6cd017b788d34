package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// pidfd is a process that can be waited for without being its parent.
type pidfd int

func pidfdOpen(pid int) (pidfd, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return pidfd(fd), err
}

// ended waits for the end of the process and closes the descriptor.
func (fd pidfd) ended(limit time.Duration) bool {
	defer unix.Close(int(fd))
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll(poll, int(max(0, time.Until(deadline)).Milliseconds()))
		if err != unix.EINTR { // the end of any child sends a signal
			return err == nil && n == 1
		}
	}
}
