package procfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ChildState describes a change of a child of this process: the part of siginfo_t that waitid(2)
// fills in.
type ChildState struct {
	signo, errno, Code, _ int32
	pid, uid, Status      int32
	_                     [100]byte
}

// Exited and Stopped are CLD_EXITED and CLD_STOPPED of <signal.h>. The other ways to end are
// CLD_KILLED and CLD_DUMPED.
const (
	Exited  = 1
	Stopped = 5
)

// Wait calls waitid(2) for one child. It occupies a thread.
func Wait(pid, options int) (state ChildState, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&state)), options, nil)
	}
	return state, err
}

// AwaitExit waits until a child has exited, and leaves it a zombie. The code is 128 + signal if a
// signal ended it. ok is false if something else has reaped it.
func AwaitExit(pid int) (code, signal int, ok bool) {
	state, err := Wait(pid, unix.WEXITED|unix.WNOWAIT)
	switch {
	case err != nil:
		return 0, 0, false
	case state.Code == Exited:
		return int(state.Status), 0, true
	default:
		return 128 + int(state.Status), int(state.Status), true
	}
}
