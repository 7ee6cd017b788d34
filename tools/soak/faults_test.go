//go:build soak

package soak

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// upTo is a time below a limit.
func (s *soak) upTo(limit time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(limit)))
}

// torment injects faults into a job's services, one after the other, until the job or the time wild
// is over. When torment returns, all lasting faults are undone.
func (s *soak) torment(job string, all []*service, over <-chan struct{}) {
	defer s.undo.Wait()
	calm := time.After(wild)
	for {
		select {
		case <-time.After(s.upTo(3 * time.Second)):
		case <-calm:
			return
		case <-over:
			return
		case <-s.ctx.Done():
			return
		}
		s.harm(job, all)
	}
}

// harm injects one fault into a job. The first of the job's services leads, at least in the
// beginning.
func (s *soak) harm(job string, all []*service) {
	first, v, d := all[0], all[1+s.rng.IntN(len(all)-1)], s.upTo(2*lease)
	any := s.rng.IntN(1 << 16)
	switch n := s.rng.IntN(12); n {
	case 0, 1:
		s.did("rank killed")
		s.signalRank(job, any, syscall.SIGKILL)
	case 2:
		s.did("rank stopped")
		pid := s.signalRank(job, any, syscall.SIGSTOP)
		s.undo.Go(func() {
			s.rest(d)
			if pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
			}
		})
	case 3:
		s.did("agent killed")
		v.kill(syscall.SIGKILL, d/2)
	case 4:
		s.did("guardian killed")
		s.killGuardian(v)
	case 5:
		s.did("coordinator killed")
		first.kill(syscall.SIGKILL, d/2)
	case 6:
		s.did("agent told to leave")
		v.kill(syscall.SIGTERM, d)
	case 7:
		s.during("agent stopped", v, d, func() error { v.signal(syscall.SIGSTOP); return nil },
			func() error { v.signal(syscall.SIGCONT); return nil })
	case 8:
		s.during("cut", v, d, func() error { return v.link("down") }, func() error { return v.link("up") })
	case 9:
		to := first.node.Addr.String()
		s.during("cut up", v, d, func() error { return mislead(v.node.Name, to) }, func() error { return guide(v.node.Name, to) })
	case 10:
		to := v.node.Addr.String()
		s.during("cut down", v, d, func() error { return mislead(first.node.Name, to) }, func() error { return guide(first.node.Name, to) })
	case 11:
		s.full = true
		s.during("disk full", v, d, v.fill, v.empty)
	}
}

func (s *soak) did(what string) { s.faults[what]++ }

// during inflicts a fault on an agent for a time, unless the agent already has a fault.
func (s *soak) during(what string, v *service, d time.Duration, begin, end func() error) {
	if !v.busy.TryLock() {
		return
	}
	s.did(what)
	if err := begin(); err != nil {
		s.t.Errorf("%s on %s: %v", what, v.name, err)
	}
	s.undo.Go(func() {
		defer v.busy.Unlock()
		s.rest(d)
		if err := end(); err != nil {
			s.t.Errorf("end of %s on %s: %v", what, v.name, err)
		}
	})
}

func (v *service) link(state string) error {
	veth := strings.Replace(v.node.Name, "n", "v", 1)
	return ip("link", "set", veth, state)
}

// mislead redirects packets of one node to an address to a machine that does not exist, and guide
// ends this.
func mislead(node, to string) error {
	return ip("-n", node, "neigh", "replace", to, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
}

func guide(node, to string) error { return ip("-n", node, "neigh", "del", to, "dev", "eth0") }

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return errors.New(strings.Join(args, " ") + ": " + string(out))
	}
	return nil
}

// fill uses up the room on the disk of an agent, and empty makes room again.
func (v *service) fill() error {
	f, err := os.Create(v.ballast())
	if err != nil {
		return err
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (v *service) empty() error { return os.Remove(v.ballast()) }

func (v *service) ballast() string { return filepath.Join(v.disk, "ballast") }

// signalRank sends a signal to a process of a job, and returns its number; 0 when there is none.
func (s *soak) signalRank(job string, any int, sig syscall.Signal) int {
	pids := marked("SOAK_JOB=" + s.dir + job)
	if len(pids) == 0 {
		return 0
	}
	pid := pids[any%len(pids)]
	_ = syscall.Kill(pid, sig) // it may have ended
	return pid
}

// rest waits, but not beyond the end of the test.
func (s *soak) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// killGuardian ends the process that would end an agent's ranks.
func (s *soak) killGuardian(v *service) {
	for _, pid := range children(v.pid()) {
		if command, _ := os.ReadFile(proc(pid, "cmdline")); strings.HasPrefix(string(command), "rankguard\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}
