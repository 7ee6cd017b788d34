package proc

import (
	"time"

	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/launcher/report"
)

// codeUnknown is the exit code of a process that another part of the program has reaped: an unknown
// end is never a success.
const codeUnknown = 255

// Process is one process that was started, without its descendants.
type Process struct {
	pid int
	// handle is open from the start if a Forker made the process, otherwise once it is waited for.
	handle procfs.Handle
	done   chan struct{}
	exit   report.Exit
	at     time.Time

	forked   bool
	unforked error
}

// Kept returns a process that the keeper supervises. [Process.Forked] will return forked and
// unforked. The caller must call end once, with how and when the process ended.
func Kept(pid int, forked bool, unforked error) (p *Process, end func(report.Exit, time.Time)) {
	p = &Process{pid: pid, forked: forked, unforked: unforked, done: make(chan struct{})}
	return p, func(exit report.Exit, at time.Time) {
		p.exit, p.at = exit, at
		close(p.done)
	}
}

// Pid is the number of the process, its session and its group. It is not reused before the scope
// has ended.
func (p *Process) Pid() int { return p.pid }

// Forked reports whether the command's Forker made the process, and why it did not. Both are zero
// without a Forker.
func (p *Process) Forked() (bool, error) { return p.forked, p.unforked }

// Done is closed when the process has exited. Descendants may live on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for Done and returns how the process ended.
func (p *Process) Exit() report.Exit {
	<-p.done
	return p.exit
}

// At waits for Done and returns the time at which the process exited.
func (p *Process) At() time.Time {
	<-p.done
	return p.at
}

// wait waits until the process exits, and leaves it a zombie. It occupies a thread only where the
// kernel has no pidfds.
func (p *Process) wait(explain func(*Process)) {
	if !p.handle.Pinned() {
		p.handle = procfs.Open(p.pid)
	}
	p.handle.Await()
	p.handle.Close()
	p.exit, p.at = exitOf(p.pid), time.Now()
	explain(p)
	close(p.done)
}

// exitOf waits until a child has exited, and does not reap it.
func exitOf(pid int) report.Exit {
	code, signal, ok := procfs.AwaitExit(pid)
	if !ok {
		return report.Exit{Code: codeUnknown}
	}
	return report.Exit{Code: code, Signal: signal}
}
