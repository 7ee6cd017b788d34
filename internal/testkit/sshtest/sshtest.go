// Package sshtest runs real SSH servers for the length of a test: a head node with an ssh client,
// and nodes with an sshd each. A node consists of namespaces of this machine. Each node has a
// network with an address of its own (package nettest). A node with a server also has a host name
// and a process namespace. When the process namespace ends, all processes that were started there
// end too. The package is for tests, on Linux, as root, with the requirements of nettest, and with
// Debian's packages openssh-server and openssh-client.
package sshtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// Hosts are running servers.
type Hosts struct {
	// Head is the node for commands that use ssh. It has no server.
	Head nettest.Node
	// Nodes have a server each, with their own host keys. The head's ssh_config calls them n1, n2
	// and so on, and has three more names: closed refuses the connection, stranger is n1 with an
	// unknown host key, and locked is n1 without the user's key.
	Nodes []nettest.Node

	t testing.TB
	// dir has the keys and the configurations.
	dir string
	// netns are the network namespaces, the head's first.
	netns []string
	// servers are the first processes of the nodes.
	servers []int
}

// startLimit bounds the start of a server, which takes 20 ms on an idle machine.
const startLimit = time.Minute

// Start returns n hosts. At the end of the test, it ends them with all their processes. The
// servers' logs are shown if the test fails. Where OpenSSH is not installed the test is skipped, or
// fails if CI=true.
func Start(t testing.TB, n int) *Hosts {
	t.Helper()
	need(t)
	addrs := []string{"10.78.0.2"}
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("10.78.0.%d", 9+i))
	}
	nodes := nettest.Nodes(t, addrs...)
	h := &Hosts{Head: nodes[0], Nodes: nodes[1:], t: t, dir: t.TempDir()}
	for _, node := range nodes {
		h.netns = append(h.netns, node.Name)
	}
	for i := range h.Nodes {
		h.Nodes[i].Name = fmt.Sprintf("n%d", i+1)
	}
	h.keygen("user")
	h.keygen("other")
	h.configure()
	for _, node := range h.Nodes {
		h.serve(node)
	}
	return h
}

func need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen"} {
		_, err := exec.LookPath(program)
		if err == nil {
			continue
		}
		suite.Missing(t, "there is no OpenSSH: apt-get install openssh-server openssh-client")
	}
}

// Command returns a command that runs on the head node. The ssh in its PATH reads the head's
// ssh_config instead of the user's.
func (h *Hosts) Command(argv ...string) *exec.Cmd {
	cmd := h.Head.Command(argv...)
	cmd.Env = append(os.Environ(), "PATH="+h.file("bin")+":"+os.Getenv("PATH"))
	return cmd
}

// Processes returns the processes on the nodes and on the head, except the servers. A process may
// end meanwhile.
func (h *Hosts) Processes() []int {
	h.t.Helper()
	var pids []int
	for _, name := range h.netns {
		out, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			h.t.Fatalf("list the processes of %s: %v", name, err)
		}
		for text := range strings.FieldsSeq(string(out)) {
			pid, err := strconv.Atoi(text)
			comm, gone := os.ReadFile("/proc/" + text + "/comm")
			if err == nil && gone == nil && string(comm) != "sshd\n" && !slices.Contains(h.servers, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// configure writes the head's ssh_config, and a script named ssh that reads it: ssh looks for the
// user's own ssh_config in the directory of the user database, no matter what HOME is.
func (h *Hosts) configure() {
	h.t.Helper()
	var config, known strings.Builder
	alias := func(name string, addr netip.Addr, hostKey, userKey string) {
		fmt.Fprintf(&config, "Host %s\n\tHostName %v\n\tHostKeyAlias %s\n\tIdentityFile %s\n", name, addr, hostKey, h.file(userKey))
	}
	for _, n := range h.Nodes {
		h.keygen(n.Name)
		key, err := os.ReadFile(h.file(n.Name + ".pub"))
		if err != nil {
			h.t.Fatal(err)
		}
		fmt.Fprintf(&known, "%s %s", n.Name, key)
		alias(n.Name, n.Addr, n.Name, "user")
	}
	alias("closed", h.Head.Addr, "n1", "user")
	alias("stranger", h.Nodes[0].Addr, "stranger", "user")
	alias("locked", h.Nodes[0].Addr, "n1", "other")
	fmt.Fprintf(&config, "Host *\n\tUser root\n\tIdentitiesOnly yes\n\tIdentityAgent none\n")
	fmt.Fprintf(&config, "\tUserKnownHostsFile %s\n\tGlobalKnownHostsFile /dev/null\n", h.file("known"))
	h.write("config", config.String(), 0o600)
	h.write("known", known.String(), 0o600)
	ssh, err := exec.LookPath("ssh")
	if err == nil {
		err = os.Mkdir(h.file("bin"), 0o755)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("bin/ssh", fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", ssh, h.file("config")), 0o755)
}

// serve starts a node's server, which runs until the end of the test.
func (h *Hosts) serve(n nettest.Node) {
	h.t.Helper()
	server, err := Serve(h.t, n, h.dir, h.file("user.pub"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(server.End)
	h.servers = append(h.servers, server.pid)
}

// sshd is in the foreground and accepts no keys except those of a file. Its files are in /tmp, a
// directory that anyone may write to, which StrictModes would not allow.
const sshd = `HostKey %[1]s
ListenAddress %[2]v
AuthorizedKeysFile %[3]s
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
SetEnv %[4]s
`

// Server is a running sshd.
type Server struct {
	pid   int
	end   context.CancelFunc
	ended chan struct{}
	// cgroup is the directory of the machine's cgroup, or empty if this machine has no cgroup v2.
	cgroup string
}

// End ends the server and all processes that it has started.
func (s *Server) End() {
	s.end()
	<-s.ended
	removeCgroup(s.cgroup)
}

// Serve starts a server on a node, for root with the keys in a file. Sessions have the variables of
// env. The server is the first process of a process namespace: when it ends, at the latest with this
// process, the kernel ends all processes that the server has started. Its log is shown if the test
// fails. Its host key is in dir, named after the node.
func Serve(t testing.TB, n nettest.Node, dir, keys string, env ...string) (*Server, error) {
	file := func(name string) string { return filepath.Join(dir, name) }
	if _, err := os.Stat(file(n.Name)); err != nil {
		if err := keygen(file(n.Name)); err != nil {
			return nil, err
		}
	}
	words := []string{"TMPDIR=" + dir}
	for _, v := range env {
		words = append(words, strconv.Quote(v))
	}
	text := fmt.Sprintf(sshd, file(n.Name), n.Addr, keys, strings.Join(words, " "))
	if err := os.WriteFile(file(n.Name+".sshd"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	// The shell reaps the processes that sessions leave. Debian's sshd needs a directory in /run,
	// which only its service would make. The user's own settings of shells (.bashrc) are hidden:
	// they may be slow, and leave files when they are killed.
	const script = `hostname "$0" && mount -t proc proc /proc && mount -t tmpfs run /run && mkdir -m 755 /run/sshd &&
		mount -t tmpfs home ~root && { "$@"; exit $?; }`
	argv := n.Command("sh", "-c", script, n.Name, "/usr/sbin/sshd", "-D", "-e", "-f", file(n.Name+".sshd")).Args
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	listens, s := make(chan error, 2), &Server{end: cancel, ended: make(chan struct{}), cgroup: makeCgroup()}
	if s.cgroup != "" {
		dir, err := os.Open(s.cgroup)
		if err != nil {
			cancel()
			return nil, err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // the parent of Pdeathsig is a thread
		if err := cmd.Start(); err != nil {
			listens <- err
			return
		}
		follow(t, n.Name, log, listens)
		_ = cmd.Wait()
	}()
	select {
	case err = <-listens:
	case <-time.After(startLimit):
		err = errors.New("it does not listen")
	}
	if err != nil {
		s.End()
		return nil, fmt.Errorf("sshd of %s: %w", n.Name, err)
	}
	s.pid = cmd.Process.Pid
	return s, nil
}

// makeCgroup makes a cgroup for a machine below this process's own, and returns its directory. A
// golaunch on the machine makes its cgroups there. When the machine ends by SIGKILL, nothing else
// could remove them. makeCgroup returns an empty name if this machine has no cgroup v2, or the
// cgroup cannot be made.
func makeCgroup() string {
	mount, err := exec.Command("findmnt", "--noheadings", "--first-only", "--types", "cgroup2", "--output", "TARGET").Output()
	own, readErr := os.ReadFile("/proc/self/cgroup")
	if err != nil || readErr != nil {
		return ""
	}
	for line := range strings.Lines(string(own)) {
		if below, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			if dir, err := os.MkdirTemp(filepath.Join(strings.TrimSpace(string(mount)), below), "sshtest-"); err == nil {
				return dir
			}
		}
	}
	return ""
}

// removeCgroup removes a cgroup, which has no processes any more, and the cgroups in it.
func removeCgroup(top string) {
	var dirs []string
	_ = filepath.WalkDir(top, func(dir string, d os.DirEntry, err error) error { // no cgroup, no error
		if err == nil && d.IsDir() {
			dirs = append(dirs, dir)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = syscall.Rmdir(dir) // what is left shows in the cgroups of the machine
	}
}

// follow reports when a server listens, and keeps the server's last output for a test that fails.
func follow(t testing.TB, name string, log io.Reader, listens chan<- error) {
	const kept = 30
	var last []string
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "Server listening on ") {
			listens <- nil
		}
		last = append(last[max(0, len(last)-kept):], lines.Text())
	}
	listens <- errors.New("it has ended")
	if t.Failed() {
		t.Logf("sshd of %s:\n%s", name, strings.Join(last, "\n"))
	}
}

// keygen makes the files of a key.
func keygen(path string) error {
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", filepath.Base(path), "-f", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a key: %w: %s", err, out)
	}
	return nil
}

func (h *Hosts) keygen(name string) {
	h.t.Helper()
	if err := keygen(h.file(name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *Hosts) write(name, text string, mode os.FileMode) {
	h.t.Helper()
	if err := os.WriteFile(h.file(name), []byte(text), mode); err != nil {
		h.t.Fatal(err)
	}
}

func (h *Hosts) file(name string) string { return filepath.Join(h.dir, name) }
