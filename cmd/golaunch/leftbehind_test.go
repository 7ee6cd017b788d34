package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestTheNextGolaunchEndsWhatIsLeft: a golaunch was killed while its guardian could not act. The
// next golaunch ends the processes that are left before its own ranks start, with a cgroup and
// without.
func TestTheNextGolaunchEndsWhatIsLeft(t *testing.T) {
	for what, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		for where, with := range map[string][]string{
			"cgroup": {golaunch(t)},
			"none":   {"unshare", "--mount", "sh", "-c", `umount -l -a -t cgroup2 && exec "$@"`, "-", golaunch(t)},
		} {
			t.Run(what+" "+where, func(t *testing.T) {
				run := func(args ...string) *process {
					return start(t, exec.Command(with[0], append(with[1:len(with):len(with)], args...)...))
				}
				marker := mark(t)
				p := run("--procs-per-node", "1", "--env", marker, "--", "sh", "-c", "(setsid sleep 1000; true) & echo up; wait")
				p.line("up")
				guardian := child(t, p.cmd.Process.Pid, "rankguard")
				p.signal(syscall.SIGSTOP) // now it cannot start another guardian
				kill(t, guardian, end)
				if end == syscall.SIGSTOP {
					t.Cleanup(func() { kill(t, guardian, syscall.SIGCONT) })
				}
				fd, err := pidfdOpen(p.cmd.Process.Pid)
				if err != nil {
					t.Fatal(err)
				}
				p.signal(syscall.SIGKILL)
				if !fd.ended(patience) { // the processes left by p hold its output open
					t.Fatal("golaunch outlives SIGKILL")
				}
				run("--", "sh", "-c", "echo mine").ends(0, "mine")
				if left := marked(t, marker); len(left) > 0 {
					t.Errorf("processes %v live when another job has run", left)
				}
			})
		}
	}
}
