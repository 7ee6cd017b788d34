package proc

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A signal to a whole process group harms a rank whose processes depend on each other: data loader
// workers die of a SIGTERM at once, and the trainer dies of their death instead of saving. So a
// signal goes to the process that can act on it. That is the leader; where the leader does not
// catch the signal (a shell, conda run, numactl), it is the topmost descendants that do. What is
// left has SIGTERM once these have ended. Where no process catches the signal, all of the group get
// it.
//
// SIGINT and SIGQUIT are what a terminal sends to a whole group. Programs that start others (bash,
// uv, a launcher in Python) count on that: they catch these two, wait for the other program, and do
// not pass them on. So all of the group get them, and what is left has SIGTERM once those have
// ended that catch them.

// fromTerminal says that programs expect a signal to reach the whole process group.
func fromTerminal(sig unix.Signal) bool { return sig == unix.SIGINT || sig == unix.SIGQUIT }

// catches says that a process has a handler for a signal, by SigCgt of /proc/PID/status.
func catches(pid int, sig unix.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(status, []byte("\nSigCgt:"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	return err == nil && mask&(1<<(uint(sig)-1)) != 0
}

// family is what lives of a scope: each process by its parent, and those of each process group.
type family struct {
	children, groups map[int][]stat
}

func (t trail) family() family {
	f := family{children: map[int][]stat{}, groups: map[int][]stat{}}
	pids, err := t.candidates()
	if err != nil {
		return f
	}
	for _, pid := range pids {
		if st, ok := readStat(pid); ok && !st.dead() {
			f.children[st.ppid] = append(f.children[st.ppid], st)
			f.groups[st.group] = append(f.groups[st.group], st)
		}
	}
	return f
}

// topmost are the nearest descendants of a process that catch a signal.
func (f family) topmost(pid int, sig unix.Signal) (found []stat) {
	for _, child := range f.children[pid] {
		if catches(child.pid, sig) {
			found = append(found, child)
		} else {
			found = append(found, f.topmost(child.pid, sig)...)
		}
	}
	return found
}

// catchers are the processes of a group that catch a signal.
func (f family) catchers(group int, sig unix.Signal) (found []stat) {
	for _, st := range f.groups[group] {
		if catches(st.pid, sig) {
			found = append(found, st)
		}
	}
	return found
}

// ask sends a signal that asks a rank to end to those of its processes that can act on it, unless
// they have heard it, and returns these; nil says that the whole group has got it, for none can.
// What no process catches gives way to SIGTERM, which programs without a handler die of, also where
// they ignore the other.
func (p *Process) ask(sig unix.Signal, heard bool, f func() family) []handle {
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
			h.signal(sig)
		}
	}
	return handles
}

// recipients are the processes of a rank that can act on a signal.
func (p *Process) recipients(sig unix.Signal, f func() family) []stat {
	switch {
	case fromTerminal(sig):
		return f().catchers(p.pid, sig)
	case catches(p.pid, sig):
		return []stat{{pid: p.pid}}
	}
	return f().topmost(p.pid, sig)
}

// signalGroup passes over a group that has ended, or that the kernel does not let us signal.
func (p *Process) signalGroup(sig unix.Signal) { _ = unix.Kill(-p.pid, sig) }

// open opens a handle on each of those that still live.
func open(processes []stat) []handle {
	handles := make([]handle, 0, len(processes))
	for _, st := range processes {
		h := openHandle(st.pid)
		if now, ok := readStat(st.pid); !ok || now.dead() || st.session != 0 && now.session != st.session {
			h.close() // the number is another process's by now
			continue
		}
		handles = append(handles, h)
	}
	return handles
}

// awaitEnd waits for processes to end, and reports whether they did so before the deadline and
// rush.
func awaitEnd(handles []handle, deadline time.Time, rush <-chan struct{}) bool {
	for len(handles) > 0 {
		if !awaitAll(handles, deadline, rush) {
			return false
		}
		var left []handle
		for _, h := range handles {
			if h.file == nil && alive(h.pid, func(stat) bool { return true }) {
				left = append(left, h)
			}
		}
		handles = left
	}
	return true
}
