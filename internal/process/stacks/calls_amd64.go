package stacks

import "golang.org/x/sys/unix"

// olderCalls are system calls that newer architectures do not have.
var olderCalls = map[int]string{
	unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_PAUSE: "pause", unix.SYS_OPEN: "open",
	unix.SYS_STAT: "stat", unix.SYS_LSTAT: "stat",
}
