package procfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// PidfdOpen is a variable so that tests can do without pidfds, as Linux before 5.3 does.
var PidfdOpen = unix.PidfdOpen

// recheck is how long AwaitAll waits for processes where the kernel has no pidfds.
const recheck = 5 * time.Millisecond

// Handle refers to one process, even if its number is reused. It is a pidfd in the network poller,
// so that a wait occupies no thread. Without pidfds, it is only the number.
type Handle struct {
	PID  int
	file *os.File
}

// Open never fails: if the process is gone, a wait for the handle returns at once.
func Open(pid int) Handle {
	fd, err := PidfdOpen(pid, 0)
	if err != nil {
		return Handle{PID: pid}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return Handle{PID: pid}
	}
	return Handle{PID: pid, file: os.NewFile(uintptr(fd), "pidfd")}
}

// Pinned reports whether h refers to its process even if the number is reused.
func (h Handle) Pinned() bool { return h.file != nil }

// Close closes the handle.
func (h Handle) Close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}

// Kill sends SIGKILL.
func (h Handle) Kill() { h.Signal(unix.SIGKILL) }

// Signal sends a signal.
func (h Handle) Signal(sig unix.Signal) {
	if h.file == nil {
		_ = unix.Kill(h.PID, sig)
		return
	}
	if conn, err := h.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
}

// Exists fails if the process has ended and was reaped. It needs a pinned handle.
func (h Handle) Exists() error {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var gone error
	err = conn.Control(func(fd uintptr) { gone = unix.PidfdSendSignal(int(fd), 0, nil, 0) })
	return errors.Join(err, gone)
}

// Await waits until the process has exited, and returns false if the deadline of the handle's file
// passed first. Without a pidfd it returns true at once.
func (h Handle) Await() bool {
	return h.file == nil || AwaitFile(h.file, readable) == nil
}

// AwaitFile waits on a non-blocking file until done returns true or the file's deadline passes. It
// calls done at each event.
func AwaitFile(f *os.File, done func(fd uintptr) bool) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(done)
}

func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// AwaitAll waits until all processes have exited, and returns false if the deadline or rush came
// first. Without pidfds, some processes may still live, and the caller must look again. It closes
// the handles.
func AwaitAll(handles []Handle, deadline time.Time, rush <-chan struct{}) bool {
	all := make(chan bool, 1)
	for _, h := range handles {
		if h.file != nil {
			_ = h.file.SetReadDeadline(deadline)
		}
	}
	go func() {
		ok := true
		if slices.ContainsFunc(handles, func(h Handle) bool { return h.file == nil }) {
			time.Sleep(recheck)
		}
		for _, h := range handles {
			ok = h.Await() && ok
			h.Close()
		}
		all <- ok && time.Now().Before(deadline)
	}()
	select {
	case ok := <-all:
		return ok
	case <-rush:
		return false
	}
}

// Find opens a handle on each of the processes that live and match.
func Find(pids []int, match func(Stat) bool) []Handle {
	var found []Handle
	for _, pid := range pids {
		if !Alive(pid, match) {
			continue
		}
		h := Open(pid)
		if !Alive(pid, match) {
			h.Close()
			continue
		}
		found = append(found, h)
	}
	return found
}

// Alive reports whether a process lives and matches.
func Alive(pid int, match func(Stat) bool) bool {
	st, ok := ReadStat(pid)
	return ok && !st.Dead() && match(st)
}

// KillLimit bounds the wait for processes that got SIGKILL: a process that lives longer hangs in a
// driver or a file system.
const KillLimit = 2 * time.Minute

// Survivors returns an error that names the processes which still live.
func Survivors(handles []Handle) error {
	err := fmt.Errorf("processes outlive SIGKILL by %v: a driver or file system holds them (see /proc/PID/stack)", KillLimit)
	for _, h := range handles {
		if st, ok := ReadStat(h.PID); ok && !st.Dead() {
			err = fmt.Errorf("%w; pid %v", err, st)
		}
	}
	return err
}
