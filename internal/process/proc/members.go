package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
)

// Member is a process of a scope, as it was when it was looked at.
type Member struct {
	PID int
	// Leader is the process that was started and has that session.
	Leader int
	Name   string
	// State is the kernel's letter: R, S, D, T, t (proc_pid_stat(5)). A process that has ended is no member.
	State byte
	// CPU is the processor time of the process and of its children that have ended, and Faults are the pages that these have touched
	// first: a process that computes touches some all the time, one that spins in a wait does not.
	CPU    time.Duration
	Faults uint64
	// IO is in bytes, by read(2), write(2) and the like, of files and pipes; 0 where it may not be known.
	IO uint64
	// Memory is what it has in memory, in bytes; what processes share counts for each.
	Memory uint64
}

// Members are the processes that live in the sessions of those that were started, in no order.
func (sc *Scope) Members() ([]Member, error) {
	return sc.trail().members()
}

// Members are the processes that live in the sessions of these leaders, which another process has started since an epoch.
func Members(leaders []int, since Epoch) ([]Member, error) {
	return trail{sessions: leaders, since: since}.members()
}

func (t trail) members() ([]Member, error) {
	pids, err := t.candidates()
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, pid := range pids {
		st, ok := readStat(pid)
		if !ok || st.dead() || !slices.Contains(t.sessions, st.session) {
			continue
		}
		members = append(members, Member{
			PID: pid, Leader: st.session, Name: st.comm, State: st.state,
			CPU: time.Duration(st.ticks) * tick, Faults: st.faults, IO: transferred(pid),
			Memory: st.pages * pageSize,
		})
	}
	return members, nil
}

var pageSize = uint64(os.Getpagesize())

// tick is the unit of processor time in /proc: USER_HZ is 100 on all of Linux's GPU platforms.
const tick = 10 * time.Millisecond

// transferred adds rchar and wchar of /proc/PID/io.
func transferred(pid int) (total uint64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, number, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if string(name) != "rchar" && string(name) != "wchar" {
			continue
		}
		n, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			return 0
		}
		total += n
	}
	return total
}
