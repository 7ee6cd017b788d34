package proc

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

// codeUnknown is the exit code of a process whose status somebody else took: an unknown end is never a success.
const codeUnknown = 255

// Process is one process that was started. Its descendants are its scope's business.
type Process struct {
	pid int
	// handle is a pidfd of what a Forker has made, until it is waited for; zero for others.
	handle handle
	done   chan struct{}
	exit   report.Exit
	at     time.Time

	forked   bool
	unforked error
}

// Kept is a process that another process of golaunch supervises, and whether that has forked it, or why not. End, to be called once, says how
// and when it ended.
func Kept(pid int, forked bool, unforked error) (p *Process, end func(report.Exit, time.Time)) {
	p = &Process{pid: pid, forked: forked, unforked: unforked, done: make(chan struct{})}
	return p, func(exit report.Exit, at time.Time) {
		p.exit, p.at = exit, at
		close(p.done)
	}
}

// Pid is the number of the process, and of its session and group. It names nothing else until the scope has ended.
func (p *Process) Pid() int { return p.pid }

// Forked reports whether the command's Forker made the process, and why it did not. Both are zero without one.
func (p *Process) Forked() (bool, error) { return p.forked, p.unforked }

// Done is closed when the process has exited. Descendants may live on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for Done and says how the process ended.
func (p *Process) Exit() report.Exit {
	<-p.done
	return p.exit
}

// At waits for Done and says when that was.
func (p *Process) At() time.Time {
	<-p.done
	return p.at
}

// wait leaves the process a zombie. It occupies no thread, except where the kernel has no pidfds.
func (p *Process) wait(explain func(*Process)) {
	if p.handle.file == nil {
		p.handle = openHandle(p.pid)
	}
	p.handle.await()
	p.handle.close()
	p.exit, p.at = exitOf(p.pid), time.Now()
	explain(p)
	close(p.done)
}

// siginfo is the kernel's siginfo_t of a child.
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status      int32
	_                     [100]byte
}

// exitOf waits until pid, a child, has exited, and does not reap it.
func exitOf(pid int) report.Exit {
	info, err := waitFor(pid, unix.WEXITED|unix.WNOWAIT)
	switch {
	case err != nil:
		return report.Exit{Code: codeUnknown}
	case info.code == cldExited:
		return report.Exit{Code: int(info.status)}
	default:
		return report.Exit{Code: 128 + int(info.status), Signal: int(info.status)}
	}
}

// waitFor is waitid(2) for one child. It occupies a thread.
func waitFor(pid, options int) (info siginfo, err error) {
	err = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), options, nil)
	}
	return info, err
}

// cldExited and cldStopped are CLD_EXITED and CLD_STOPPED of <signal.h>; the other ways to exit are CLD_KILLED and CLD_DUMPED.
const (
	cldExited  = 1
	cldStopped = 5
)

// reap lets go of a child that has exited. It leaves the table first: between the two steps the number is still its own.
func (s *Supervisor) reap(pid int) {
	s.forget(pid)
	for {
		// Who else took the status has reaped the process as well.
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
