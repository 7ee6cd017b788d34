package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// asNobody returns golaunch as a user without rights, in a directory of that user.
func asNobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	bin, home := filepath.Join(dir, "golaunch"), filepath.Join(dir, "home")
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o755), os.Link(golaunch(t), bin), os.Mkdir(home, 0o755), os.Chown(home, 65534, 65534),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", append([]string{"-c", `umask 000; exec "$@"`, "sh", bin}, args...)...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// TestWhatOthersSee: of a coordinator with a rank, other users see one port at one address, but no
// file, memory, environment or token, even under a umask that hides nothing.
func TestWhatOthersSee(t *testing.T) {
	t.Parallel()
	port := nettest.Port(t)
	cmd := asNobody(t, "--rendezvous", fmt.Sprintf("127.0.0.1:%d", port), "--nodes", "1", "--log-dir", "logs", "--job-id", "a", "--", "sh", "-c",
		"trap 'exit 0' USR1; env; cat /proc/$PPID/cmdline; echo up; sleep 1000 & wait")
	cmd.Env = append(cmd.Env, secret)
	p := start(t, cmd)
	p.line("up$")
	_, token, _ := strings.Cut(secret, "=")
	if said, _ := p.out.read(); strings.Contains(said, token) {
		t.Error("the token is in the environment of a rank, or in the arguments of golaunch")
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("golaunch can be dumped: its /proc files are uid %d's", uid)
	}
	if l, err := exec.Command("ss", "-Hltnp").CombinedOutput(); err != nil || strings.Count(string(l), fmt.Sprintf(":%d ", port)) != 1 ||
		!strings.Contains(string(l), fmt.Sprintf("127.0.0.1:%d ", port)) {
		t.Errorf("%v: not just 127.0.0.1:%d is open:\n%s", err, port, l)
	}
	p.signal(syscall.SIGUSR1)
	p.ends(0)
	err = filepath.WalkDir(cmd.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == cmd.Dir {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v", path, info.Mode())
		}
		if e.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err == nil && bytes.Contains(content, []byte(token)) {
				t.Errorf("the token is in %s", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNoMoreProcesses has a limit that does not let all ranks start: then no rank starts.
func TestNoMoreProcesses(t *testing.T) {
	t.Parallel()
	marker := mark(t)
	cmd := asNobody(t, "--procs-per-node", "200", "--log-dir", "logs", "--env", marker, "--", "sleep", "1000")
	cmd.Args = append([]string{"prlimit", "--nproc=100"}, cmd.Args...)
	path, err := exec.LookPath("prlimit")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = path
	start(t, cmd).ends(125, "200 ranks need as many processes, and uid ", "may have 100 on this node: raise it (ulimit -u")
	gone(t, marker)
}

// TestArgumentsAreBytes: arguments are bytes that no shell reads.
func TestArgumentsAreBytes(t *testing.T) {
	t.Parallel()
	args := []string{"; rm -rf x", "$(id)", "`id`", "two\nlines", `"quo'tes`, "", "*", "\xff\xfe", "--nodes", "-rf"}
	dir := t.TempDir()
	cmd := exec.Command(golaunch(t), append([]string{"--quiet", "--", "sh", "-c", `printf '%s\0' "$@" >args`, "sh"}, args...)...)
	cmd.Dir = dir
	start(t, cmd).ends(0)
	got, err := os.ReadFile(filepath.Join(dir, "args"))
	if want := strings.Join(args, "\x00") + "\x00"; err != nil || string(got) != want {
		t.Errorf("a rank gets %q, want %q (%v)", got, want, err)
	}
}

// TestASlowNetwork has a megabit a second for two ranks that write ten: heartbeats get through.
func TestASlowNetwork(t *testing.T) {
	t.Parallel()
	poor(t, "head -c 1500000 /dev/zero | tr '\\0' '\\n'", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms")
}

// TestALossyNetwork loses one packet in twenty, each way: everything takes longer, but nothing
// fails.
func TestALossyNetwork(t *testing.T) {
	t.Parallel()
	const chain = "add chain inet lossy %s { type filter hook %[1]s priority 0; }; add rule inet lossy %[1]s numgen inc mod 20 0 counter drop; "
	for _, node := range poor(t, "head -c 300000 /dev/zero | tr '\\0' '\\n'; sleep 6", // three heartbeats
		"nft", "add table inet lossy; "+fmt.Sprintf(chain, "input")+fmt.Sprintf(chain, "output")) {
		if lost, err := node.Command("nft", "list", "table", "inet", "lossy").CombinedOutput(); err != nil || strings.Contains(string(lost), "packets 0 ") {
			t.Errorf("nothing was lost: %v\n%s", err, lost)
		}
	}
}

// poor runs a job on nodes after a command has made their network worse, and checks that no rank is
// started again. It returns the nodes.
func poor(t *testing.T, rank string, worse ...string) []nettest.Node {
	t.Helper()
	h := newCluster(t)
	h.coordinate("--lease", "8s")
	h.join(1, "n10", 1)
	h.join(2, "n9", 1)
	for _, node := range h.nodes[1:] {
		if out, err := node.Command(worse...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", worse[0], err, out)
		}
	}
	h.start(0, "--nodes", "2", "--gpus-per-node", "1", "--max-restarts", "0", "--", "sh", "-c", rank+"; echo rank $RANK ends").
		ends(0, "rank 0 ends", "rank 1 ends")
	return h.nodes[1:]
}

// TestNoHelperHasTheToken checks that no guardian or simulated node has the token in its
// environment, which a rank's user may read. golaunch itself has it, and no user may read that
// environment.
func TestNoHelperHasTheToken(t *testing.T) {
	token := fmt.Sprintf("GOLAUNCH_TOKEN=%032x", os.Getpid())
	p := start(t, exec.Command(golaunch(t), "--coordinator", "none", "--simulate", "--nodes", "2", "--procs-per-node", "1", "--prefix=false", "--",
		"sh", "-c", "echo it is in $(grep -lzs '^"+token+"$' /proc/[0-9]*/environ); sleep 0.2"), token)
	p.ends(0)
	said, _ := p.out.read()
	if want := fmt.Sprintf("it is in /proc/%d/environ\n", p.cmd.Process.Pid); strings.Count(said, want) != 2 {
		t.Errorf("%q, want %q twice", said, want)
	}
}
