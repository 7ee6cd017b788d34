package proc

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/sweep"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// A signal to a whole process group harms a rank whose processes depend on each other: data loader
// workers die of SIGTERM at once, and the trainer dies of their death instead of saving. So a
// signal goes to the process that can act on it: the leader, or, if the leader does not catch the
// signal (a shell, conda run, numactl), the topmost descendants that catch it. Once the signalled
// processes have ended, the other processes get SIGTERM. If no process catches the signal, the
// whole group gets it.
//
// A terminal sends SIGINT and SIGQUIT to a whole group. Programs that start other programs (bash,
// uv, a launcher in Python) rely on that: they catch these two signals, wait for the other program,
// and do not pass the signals on. So the whole group gets these signals. Once the processes that
// catch the signals have ended, the other processes get SIGTERM.

// fromTerminal reports whether programs expect a signal to reach the whole process group.
func fromTerminal(sig unix.Signal) bool { return sig == unix.SIGINT || sig == unix.SIGQUIT }

// catches reports whether a process has a handler for a signal.
func catches(pid int, sig unix.Signal) bool {
	mask, err := strconv.ParseUint(procfs.Status(pid, "SigCgt"), 16, 64)
	return err == nil && mask&(1<<(uint(sig)-1)) != 0
}

// family has the living processes of a scope, by parent and by process group.
type family struct {
	children, groups map[int][]procfs.Stat
}

func familyOf(t sweep.Trail) family {
	f := family{children: map[int][]procfs.Stat{}, groups: map[int][]procfs.Stat{}}
	pids, err := t.Candidates()
	if err != nil {
		return f
	}
	for _, pid := range pids {
		if st, ok := procfs.ReadStat(pid); ok && !st.Dead() {
			f.children[st.PPID] = append(f.children[st.PPID], st)
			f.groups[st.Group] = append(f.groups[st.Group], st)
		}
	}
	return f
}

// topmost returns the nearest descendants of a process that catch a signal.
func (f family) topmost(pid int, sig unix.Signal) (found []procfs.Stat) {
	for _, child := range f.children[pid] {
		if catches(child.PID, sig) {
			found = append(found, child)
		} else {
			found = append(found, f.topmost(child.PID, sig)...)
		}
	}
	return found
}

// catchers returns the processes of a group that catch a signal.
func (f family) catchers(group int, sig unix.Signal) (found []procfs.Stat) {
	for _, st := range f.groups[group] {
		if catches(st.PID, sig) {
			found = append(found, st)
		}
	}
	return found
}

// wrapperMemory bounds the resident memory of a process that only starts a program (a shell, uv,
// conda run), in bytes.
const wrapperMemory = 64 << 20

// Catches reports whether the program of a rank catches a signal, and so may save a checkpoint. The
// program is the leader, or the process that a leader starts if the leader does nothing else.
// Helpers of a program do not count: copies of it, such as data loader workers, and all helpers of
// a large program. SIGINT and SIGQUIT do not count either, since Python catches them for every
// program.
func Catches(leader int, members []Member, sig unix.Signal) bool {
	if fromTerminal(sig) {
		return false
	}
	memory, below := map[int]uint64{}, map[int][]int{}
	for _, m := range members {
		memory[m.PID] = m.Memory
		if st, ok := procfs.ReadStat(m.PID); ok {
			below[st.PPID] = append(below[st.PPID], m.PID)
		}
	}
	var look func(pid int) bool
	look = func(pid int) bool {
		if catches(pid, sig) {
			return true
		}
		return memory[pid] <= wrapperMemory && slices.ContainsFunc(below[pid], func(child int) bool { return !copied(child, pid) && look(child) })
	}
	return look(leader)
}

// copied reports whether a process is a copy of its parent: a fork, or the process that Python's
// multiprocessing starts instead of a fork.
func copied(pid, parent int) bool {
	own, err := procfs.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || bytes.Contains(own, []byte("from multiprocessing.")) {
		return true
	}
	its, err := procfs.ReadFile("/proc/" + strconv.Itoa(parent) + "/cmdline")
	return err != nil || bytes.Equal(own, its)
}

// ask sends a signal to the processes of a rank that can act on it, unless they have already had
// the signal, and returns these processes. It returns nil if no process can act on the signal: then
// the whole group gets SIGTERM, which ends programs without a handler, even if they ignore the
// other signal.
func (p *Process) ask(sig unix.Signal, heard bool, f func() family) []procfs.Handle {
	found := p.recipients(sig, f)
	switch {
	case len(found) == 0 && heard:
		return nil
	case len(found) == 0 && sig != unix.SIGTERM:
		return p.ask(unix.SIGTERM, false, f)
	case len(found) == 0:
		p.signalGroup(sig)
		return nil
	}
	handles := open(found)
	switch {
	case heard:
	case fromTerminal(sig):
		p.signalGroup(sig)
	default:
		for _, h := range handles {
			h.Signal(sig)
		}
	}
	return handles
}

// recipients returns the processes of a rank that can act on a signal.
func (p *Process) recipients(sig unix.Signal, f func() family) []procfs.Stat {
	switch {
	case fromTerminal(sig):
		return f().catchers(p.pid, sig)
	case catches(p.pid, sig):
		return []procfs.Stat{{PID: p.pid}}
	}
	return f().topmost(p.pid, sig)
}

// signalGroup signals a group. It ignores groups that have ended, and groups that this process may
// not signal.
func (p *Process) signalGroup(sig unix.Signal) { _ = unix.Kill(-p.pid, sig) }

// open opens a handle on each process that still lives.
func open(processes []procfs.Stat) []procfs.Handle {
	handles := make([]procfs.Handle, 0, len(processes))
	for _, st := range processes {
		h := procfs.Open(st.PID)
		if now, ok := procfs.ReadStat(st.PID); !ok || now.Dead() || st.Session != 0 && now.Session != st.Session {
			h.Close() // the number has been reused
			continue
		}
		handles = append(handles, h)
	}
	return handles
}

// awaitEnd waits until processes have ended. It returns false if the deadline passes or rush is
// closed first.
func awaitEnd(handles []procfs.Handle, deadline time.Time, rush <-chan struct{}) bool {
	for len(handles) > 0 {
		if !procfs.AwaitAll(handles, deadline, rush) {
			return false
		}
		handles = slices.DeleteFunc(handles, func(h procfs.Handle) bool {
			return h.Pinned() || !procfs.Alive(h.PID, func(procfs.Stat) bool { return true })
		})
	}
	return true
}
