// Package signals receives the signals that golaunch acts on.
//
// A shell that starts a program with & in a script makes the program ignore SIGINT and SIGQUIT,
// since the program shares the process group that gets ^C. A trap of that script may still send
// SIGINT on purpose. The kernel distinguishes the two cases: a signal of the terminal has the code
// SI_KERNEL. os/signal does not report this code, so a handler of this package runs before Go's
// handler.
package signals

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// next is Go's handler, the same for all signals.
var next uintptr //nolint:unused // filter goes on to it

// fromProcesses delivers signals that a process has sent, and ignores those of the terminal. On a
// processor architecture without a filter, it ignores all of these signals.
func fromProcesses(heard chan<- os.Signal, signals ...syscall.Signal) error {
	if filterAddr() == 0 {
		return nil
	}
	for _, s := range signals {
		signal.Notify(heard, s)
		var a action
		if err := sigaction(s, nil, &a); err != nil {
			return err
		}
		if a.handler == filterAddr() {
			continue // the handler is installed already
		}
		next, a.handler = a.handler, filterAddr()
		if err := sigaction(s, &a, nil); err != nil {
			return err
		}
	}
	return nil
}

func sigaction(s syscall.Signal, set, old *action) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)),
		unsafe.Sizeof(old.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("sigaction of %v: %w", s, errno)
	}
	return nil
}
