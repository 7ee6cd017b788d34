package proc

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// pidfdOpen is a variable so that tests can do without it, as Linux before 5.3 does.
var pidfdOpen = unix.PidfdOpen

// recheck is how long to wait for processes where the kernel has no pidfds, before looking again.
const recheck = 5 * time.Millisecond

// handle refers to one process, whatever becomes of its number: a pidfd in the netpoller, so that to wait costs no thread.
// Without a pidfd it is the bare number.
type handle struct {
	pid  int
	file *os.File
}

// openHandle never fails: a handle of a process that is gone has nothing to wait for.
func openHandle(pid int) handle {
	fd, err := pidfdOpen(pid, 0)
	if err != nil {
		return handle{pid: pid}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return handle{pid: pid}
	}
	return handle{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}
}

func (h handle) close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}

// kill sends SIGKILL.
func (h handle) kill() { h.signal(unix.SIGKILL) }

func (h handle) signal(sig unix.Signal) {
	if h.file == nil {
		_ = unix.Kill(h.pid, sig)
		return
	}
	if conn, err := h.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
}

// await waits until the process has exited, and reports false when the deadline of the file came first. Without a pidfd it
// reports true at once.
func (h handle) await() bool {
	return h.file == nil || awaitFile(h.file, readable) == nil
}

// awaitFile waits on a non-blocking file, again at each of its events, until done says so or the file's deadline has come.
func awaitFile(f *os.File, done func(fd uintptr) bool) error {
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

// awaitAll waits until all have exited, and reports false when the deadline or rush came first. Where there are no pidfds, some
// may still live: the caller looks again.
func awaitAll(handles []handle, deadline time.Time, rush <-chan struct{}) bool {
	all := make(chan bool, 1)
	for _, h := range handles {
		if h.file != nil {
			_ = h.file.SetReadDeadline(deadline)
		}
	}
	go func() {
		ok := true
		if slices.ContainsFunc(handles, func(h handle) bool { return h.file == nil }) {
			time.Sleep(recheck)
		}
		for _, h := range handles {
			ok = h.await() && ok
			h.close()
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
