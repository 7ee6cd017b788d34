package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/sshtest"
	"github.com/golaunch/golaunch/launcher"
)

// onHosts returns golaunch on the head of hosts, in a directory that exists on all hosts.
func onHosts(t *testing.T, h *sshtest.Hosts, args ...string) *process {
	t.Helper()
	cmd := h.Command(append([]string{golaunch(t), "--backoff", "0s"}, args...)...)
	cmd.Dir = t.TempDir()
	return start(t, cmd)
}

// left checks that no host has a process of golaunch: at once if golaunch could end normally, and
// otherwise within moments.
func left(t *testing.T, h *sshtest.Hosts) {
	t.Helper()
	for _, pid := range h.Processes() {
		fd, err := pidfdOpen(pid)
		if err == nil && !fd.ended(patience) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestSSH(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 3)
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# ours\nn1 slots=2 max_slots=4\r\nn2 slots=2\n\nroot@n3:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const told = "echo rank $RANK of $WORLD_SIZE on $GOLAUNCH_NODE, a $(hostname), at $MASTER_ADDR in $(pwd) with $FLAVOUR$SECRET$PARENT; " +
		"echo oops >&2; [ $RANK != ${FAILS-none} ] || exit 7; [ -z $FAILS ] || sleep 1000"
	command := h.Command(golaunch(t), "--hostfile", file, "--env", "FLAVOUR=it's salt", "--env", "SECRET", "--", "sh", "-c", told)
	command.Dir = filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(command.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, command, "SECRET= and pepper", "PARENT= and sugar").ends(0,
		"[r0 n1] rank 0 of 6 on n1, a n1, at 10.78.0.9 in "+command.Dir+" with it's salt and pepper\n",
		"[r5 n3] rank 5 of 6 on n3, a n3, at 10.78.0.9 in "+command.Dir+" with it's salt and pepper\n",
		"[r3 n2] oops\n", "job succeeded")
	left(t, h)
	onHosts(t, h, "--hosts", "n1:1,n3:3", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE on $(hostname)").ends(0, "rank 0 of 4 on n1\n", "rank 3 of 4 on n3\n")
	onHosts(t, h, "--hosts", "n[1-3]", "--procs-per-node", "2", "--max-restarts", "0", "--env", "FAILS=3", "--", "sh", "-c", told).
		ends(7, "rank 3 on n2 exited with code 7")
	left(t, h)
}

// spreader is a Go program that runs a job on the hosts in its argument.
func spreader() {
	fmt.Println("the program's own main", os.Args[1:])
	hosts, err := launcher.ParseHosts(os.Args[1], "")
	if err != nil {
		panic(err)
	}
	result, err := launcher.Run(context.Background(), launcher.Job{
		Command: []string{"sh", "-c", "echo rank $RANK on $(hostname)"}, Network: launcher.Network{Hosts: hosts},
	})
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(result.Code)
}

// TestSSHFromAnotherProgram: the nodes of a program's job run the golaunch in the PATH, and never
// that program.
func TestSSHFromAnotherProgram(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	p := start(t, h.Command("spreader", "n1,n2"))
	code, out := p.wait()
	if code != 0 || strings.Count(out, "the program's own main [n1,n2]") != 1 || strings.Count(out, "own main") != 1 ||
		!strings.Contains(out, "rank 0 on n1") || !strings.Contains(out, "rank 1 on n2") {
		t.Errorf("code %d:\n%s", code, out)
	}
	left(t, h)
	program, err := exec.LookPath("spreader")
	if err != nil {
		t.Fatal(err)
	}
	start(t, h.Command(program, "n1,n2"), "PATH="+t.TempDir()).ends(125, "cannot start golaunch on the nodes", "install golaunch here and there at the same path")
}

// TestSSHThatFails: the error has the host and ssh's own words, and no process is left on the other
// hosts.
func TestSSHThatFails(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	for host, words := range map[string]string{
		"closed":   "no agent on closed: ssh failed: ssh: connect to host 10.78.0.2 port 22: Connection refused",
		"stranger": "no agent on stranger: ssh failed: Host key verification failed.",
		"locked":   "no agent on locked: ssh failed: root@10.78.0.9: Permission denied (publickey).",
		"nowhere":  "no agent on nowhere: ssh failed: ssh: Could not resolve hostname nowhere",
	} {
		onHosts(t, h, "--hosts", "n1,"+host, "--", "sleep", "1000").ends(125, words)
		left(t, h)
	}
	onHosts(t, h, "--hosts", "n1,closed,n2", "--spares", "1", "--", "sh", "-c", "echo up $RANK of $WORLD_SIZE").
		ends(0, "warning: no agent on closed", "up 1 of 2")
	left(t, h)
}

// TestSSHElsewhere has a directory that the hosts do not have: they see another /run.
func TestSSHElsewhere(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 1)
	dir, err := os.MkdirTemp("/run", "golaunch-test-") //nolint:usetesting // where the hosts have nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	onHosts(t, h, "--hosts", "n1", "--dir", dir, "--", "true").ends(125, "no agent on n1: ", dir+": No such file or directory", "cd "+dir)
	copied := filepath.Join(dir, "golaunch")
	// Another test's child would inherit the file, open for writing, and the file could not be
	// executed.
	if out, err := exec.Command("cp", golaunch(t), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := h.Command(copied, "--hosts", "n1", "--", "true")
	cmd.Dir = "/"
	start(t, cmd).ends(125, "no agent on n1: ", copied, "install this golaunch there at the same path")
	left(t, h)
}

// again is a rank that ends once it has been started again.
const again = "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK on $GOLAUNCH_NODE; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000"

func TestSSHIsKilled(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 3)
	p := onHosts(t, h, "--hosts", "n1,n2,n3", "--nodes", "2", "--procs-per-node", "2", "--", "sh", "-c", again)
	master, host := p.match(`attempt 0 rank 0 on (n\d)`)[1], p.match(`attempt 0 rank 3 on (n\d)`)[1]
	third := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(n string) bool { return n == master || n == host })[0]
	syscall.Kill(sshTo(t, h, host), syscall.SIGKILL)
	p.ends(0, host+" was lost", "attempt 1 rank 3 on "+third, "the agent of "+host+" is gone: ssh ended: signal: killed")
	left(t, h)
}

// TestSSHIsCut disconnects a node: neither end notices it.
func TestSSHIsCut(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	p := onHosts(t, h, "--hosts", "n1,n2", "--spares", "1", "--lease", "2s", "--", "sh", "-c", again)
	i := slices.Index([]string{"n1", "n2"}, p.match(`attempt 0 rank 0 on (n\d)`)[1])
	h.Nodes[i].Cut(t)
	p.ends(0, fmt.Sprintf("attempt 1 rank 0 on n%d", 2-i))
	left(t, h)
}

func TestSSHJobIsStopped(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	const stubborn = "trap '' TERM HUP; echo up $RANK; sleep 1000"
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		p := onHosts(t, h, "--hosts", "n1,n2", "--grace", "1s", "--", "sh", "-c", stubborn)
		p.line("up 0")
		p.line("up 1")
		p.cmd.Process.Signal(s)
		if s == syscall.SIGKILL {
			p.ends(-1)
		} else {
			p.ends(128 + int(s))
		}
		left(t, h)
	}
}

// sshTo finds the ssh to a host.
func sshTo(t *testing.T, h *sshtest.Hosts, host string) int {
	t.Helper()
	for _, pid := range h.Processes() {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may have ended
		if words := strings.Split(string(argv), "\x00"); filepath.Base(words[0]) == "ssh" && slices.Contains(words, host) {
			return pid
		}
	}
	t.Fatalf("there is no ssh to %s", host)
	return 0
}

func TestHostsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts")
	if err := os.WriteFile(file, []byte("n1 slots=4\nn2 slot=4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--hostfile " + file, "--hostfile " + file + `: line 2: "slot=4": want slots=N`},
		{"--hostfile " + dir, "is a directory"},
		{"--hosts=", "--hosts: it is empty"},
		{"--hosts n1 --hostfile " + file, "give --hosts or --hostfile, not both"},
		{"--hosts n1,n2,n1", "n1 is listed twice"},
		{"--hosts n[1-999999999]", "more than 1048576 hosts"},
		{"--hosts -oProxyCommand=id", "host"},
		{"--hosts n1,n2 --nodes 3", "it wants 3 nodes and 0 spares, but has only 2 hosts"},
		{"--hosts n1 --spares 1", "it wants 1 nodes and 1 spares, but has only 1 hosts"},
		{"--hosts n1:4,n2", "give slots to all hosts or to none, or --gpus-per-node auto"},
		{"--hosts n1:4,n2 --procs-per-node 8", "n1 has 4 slots, and each node 8 ranks"},
		{"--hosts n1 --simulate", "leave out simulate"},
	} {
		cmd := exec.Command(golaunch(t), append(strings.Fields(c.args), "--", "true")...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), c.want) || strings.Count(string(out), "\n") > 1 {
			t.Errorf("%s: %v, want exit code 2 and a line with %q:\n%s", c.args, err, c.want, out)
		}
	}
}
