package forkserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// forkLimit bounds the wait for each answer of a server or a fork. A server that is stopped, or
// swaps, must not delay an attempt.
const forkLimit = 5 * time.Second

// fork is a process that waits to become a rank.
type fork struct {
	server *Server
	conn   *net.UnixConn
	pid    int
}

// Fork implements [proc.Forker]. The error may be an [*UnsafeError].
func (s *Server) Fork(b proc.Birth) (proc.Fork, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	conn, far, err := Pair()
	if err != nil {
		return nil, err
	}
	s.begun()
	defer s.returned()
	f := &fork{server: s, conn: conn}
	if err := f.order(b, far); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// order has the server make the process. Once the process is known here, it moves to a session of
// its own.
func (f *fork) order(b proc.Birth, far *os.File) error {
	fds := []int{int(far.Fd())}
	// A server of another user may not make processes in a cgroup of this user. This process then
	// moves them there.
	moves := b.Cgroup >= 0 && b.Rights != nil
	if b.Cgroup >= 0 && !moves {
		fds = append(fds, b.Cgroup)
	}
	err := f.server.ask(fds)
	_ = far.Close()
	if err != nil {
		return f.server.fault(err)
	}
	answer, err := f.receive()
	if err != nil {
		return f.server.fault(err)
	}
	if f.pid = number(answer); f.pid == 0 {
		return f.refusal(answer)
	}
	if err := b.Born(f.pid); err != nil {
		return f.server.lies(err)
	}
	if _, err = f.conn.Write([]byte{1}); err == nil {
		answer, err = f.receive()
	}
	switch {
	case err != nil:
		return f.server.fault(err)
	case len(answer) != 1 || answer[0] != "session":
		return f.refusal(answer)
	}
	if err := b.Apart(); err != nil {
		return f.server.lies(err)
	}
	if moves {
		return move(f.pid, b.Cgroup)
	}
	return nil
}

// Become implements [proc.Fork]. The error may be an [*UnsafeError].
func (f *fork) Become(c *proc.Command, env []string, files []uintptr) (run func(), err error) {
	p, err := Parse(c.Args)
	if err != nil {
		return nil, &UnsafeError{Why: err.Error()}
	}
	if !p.Same(f.server.program) {
		return nil, &UnsafeError{Why: "the fork server runs another Python, or the same one with other flags"}
	}
	f.server.begun()
	defer f.server.returned()
	answer, err := f.become(words(c, p, env), int(files[0]), int(files[1]), int(files[2]))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, f.server.fault(err)
	case err != nil:
		return nil, fmt.Errorf("process %d, which waited to become a rank, has died: %w", f.pid, err)
	case len(answer) != 1 || answer[0] != "ready":
		return nil, f.refusal(answer)
	}
	return func() { f.server.open(f) }, nil
}

func (f *fork) become(words []string, fds ...int) ([]string, error) {
	if err := f.conn.SetDeadline(time.Now().Add(forkLimit)); err != nil {
		return nil, err
	}
	if err := send(f.conn, words, fds...); err != nil {
		return nil, err
	}
	return receive(f.conn)
}

// receive returns an answer of the process, or of its server if there is no process.
func (f *fork) receive() ([]string, error) {
	if err := f.conn.SetDeadline(time.Now().Add(forkLimit)); err != nil {
		return nil, err
	}
	return receive(f.conn)
}

// refusal is the error for an unexpected answer.
func (f *fork) refusal(answer []string) error {
	switch {
	case len(answer) == 2 && answer[0] == "unsafe":
		return &UnsafeError{Why: answer[1]}
	case len(answer) == 2 && answer[0] == "failed":
		return fmt.Errorf("the fork server cannot fork: %s", answer[1])
	default:
		return f.server.breaks(fmt.Errorf("unexpected message from the fork server: %.80q", answer))
	}
}

// Close implements [proc.Fork].
func (f *fork) Close() error { return f.conn.Close() }

// ask has the server make a fork, with a connection and perhaps a cgroup.
func (s *Server) ask(fds []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if err := s.conn.SetDeadline(time.Now().Add(forkLimit)); err != nil {
		return err
	}
	return send(s.conn, []string{"fork"}, fds...)
}

// breaks ends the use of a server, and returns the reason.
func (s *Server) breaks(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = why
	}
	return s.broken
}

// fault ends the use of a server that has not answered.
func (s *Server) fault(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return s.breaks(fmt.Errorf("the fork server did not answer for %v", forkLimit))
	}
	return s.breaks(fmt.Errorf("the fork server has died: %w", err))
}

// lies ends the use of a server that gave a false answer. Any module can cause that, because it
// runs code in the server.
func (s *Server) lies(err error) error {
	return s.breaks(fmt.Errorf("the fork server does not behave: %w", err))
}

// number returns the pid in a server's answer, or 0. It refuses numbers below 2 and numbers above
// the largest pid_t: signals to them would reach other processes, or all processes.
func number(answer []string) int {
	if len(answer) != 2 || answer[0] != "pid" {
		return 0
	}
	pid, err := strconv.ParseInt(answer[1], 10, 32)
	if err != nil || pid <= 1 {
		return 0
	}
	return int(pid)
}

// move moves a process to a cgroup.
func move(pid, cgroup int) error {
	procs, err := unix.Openat(cgroup, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup of a rank: %w", err)
	}
	defer unix.Close(procs)
	if _, err := unix.Write(procs, []byte(strconv.Itoa(pid))); err != nil {
		return fmt.Errorf("move a rank to its cgroup: %w", err)
	}
	return nil
}

// begun and returned enclose a call of Fork or Become. Other ranks do not run until these calls
// have returned.
func (s *Server) begun() {
	s.gates.Lock()
	defer s.gates.Unlock()
	s.forking++
}

func (s *Server) returned() {
	s.gates.Lock()
	defer s.gates.Unlock()
	s.forking--
	s.release()
}

// open lets a process run once no call of Fork or Become is under way.
func (s *Server) open(f *fork) {
	s.gates.Lock()
	defer s.gates.Unlock()
	s.held = append(s.held, f)
	s.release()
}

func (s *Server) release() {
	if s.forking > 0 {
		return
	}
	for _, f := range s.held {
		_, _ = f.conn.Write([]byte{1}) // the write fails only if the process is dead
		_ = f.Close()
	}
	s.held = nil
}

// words returns the order to become a rank.
func words(c *proc.Command, p Program, env []string) []string {
	cpus := make([]string, len(c.CPUs))
	for i, cpu := range c.CPUs {
		cpus[i] = strconv.Itoa(cpu)
	}
	memory := ""
	if c.Memory != nil {
		memory = strconv.Itoa(*c.Memory)
	}
	argv := p.argv()
	out := []string{string(p.Kind), p.Name, c.Dir, strings.Join(cpus, " "), memory, fmt.Sprintf("%d %d", len(c.Args), len(argv))}
	return append(append(append(out, c.Args...), argv...), env...)
}
