package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// admit makes a process one of the scope that a Forker says is a fork of its server, if it can be one. A server may be another user's process,
// and say what it likes, but what is admitted is signalled, moved and killed by this process, which may be root's.
//
// A child of this process that was not reaped keeps its number, and none is reaped that was forked of a server while a Forker is at work, see
// [Supervisor.knows], or that is in the table: what was found out of the number is true of the process for as long as it is in the scope.
func (sc *Scope) admit(pid int, as *safefile.Rights) (*Process, error) {
	h := openHandle(pid)
	err := sc.sup.examine(h, as)
	if err == nil && !sc.sup.claim(pid) {
		err = errors.New("golaunch knows it as another one")
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("process %d is no fork of it: %w", pid, err)
	}
	p := &Process{pid: pid, handle: h, done: make(chan struct{})}
	sc.enlist(p)
	return p, nil
}

// examine says why a process cannot have been forked of a server: it is a child of this process, in the session of one that has
// [Command.Serves], and that user's whose process it shall be.
func (s *Supervisor) examine(h handle, as *safefile.Rights) error {
	st, err := examineChild(h, as)
	if err == nil && !s.serving(st.session) {
		err = fmt.Errorf("its session, %d, is not that of a fork server", st.session)
	}
	return err
}

// separate says why a process that was admitted has not gone on into a session of its own, or is not any more what was admitted.
func (p *Process) separate(as *safefile.Rights) error {
	st, err := examineChild(p.handle, as)
	if err == nil && st.session != p.pid {
		err = fmt.Errorf("it is still in session %d", st.session)
	}
	if err != nil {
		return fmt.Errorf("process %d is no rank: %w", p.pid, err)
	}
	return nil
}

// examineChild needs a pidfd, which there is none of for a thread, nor for a number that names none or several.
func examineChild(h handle, as *safefile.Rights) (stat, error) {
	if h.file == nil {
		return stat{}, errors.New("there is no such process")
	}
	st, ok := readStat(h.pid)
	switch {
	case !ok:
		return stat{}, errors.New("it is gone")
	case st.ppid != os.Getpid():
		return stat{}, fmt.Errorf("it is a child of process %d", st.ppid)
	case as != nil && !slices.Equal(owners(h.pid), slices.Repeat([]int{int(as.UID)}, 4)):
		return stat{}, fmt.Errorf("it does not run as uid %d alone", as.UID)
	}
	// The number was this process's when it was read if it is now.
	return st, h.exists()
}

// owners are the real, effective, saved and file system user IDs of a process (proc_pid_status(5)); none when there is no such process.
func owners(pid int) []int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		if words, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			return numbers(strings.Fields(string(words)))
		}
	}
	return nil
}

// serving reports whether a session is that of a process of which a Forker forks.
func (s *Supervisor) serving(session int) bool {
	s.mu.Lock()
	var servers []*Scope
	for sc := range s.scopes {
		if sc.serves.Load() {
			servers = append(servers, sc)
		}
	}
	s.mu.Unlock()
	return slices.ContainsFunc(servers, func(sc *Scope) bool { return slices.Contains(sc.trail().sessions, session) })
}

// exists says why there is no process, dead or alive, that was not reaped. It needs a pidfd.
func (h handle) exists() error {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var gone error
	err = conn.Control(func(fd uintptr) { gone = unix.PidfdSendSignal(int(fd), 0, nil, 0) })
	return errors.Join(err, gone)
}
