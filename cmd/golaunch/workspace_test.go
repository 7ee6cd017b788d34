package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/sshtest"
	"github.com/golaunch/golaunch/internal/wire/workspace"
)

// project returns a directory with a program.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.sh": "echo $RANK has $(cat lib/part) in $(ls -A | tr '\\n' ' ')\n", "lib/part": "one\n", "data.bin": "big\n", ".gitignore": "*.bin\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	return dir
}

const projectSeen = `has one in \.gitignore lib train\.sh`

// noWorkspace checks that no node has kept the directory of a job.
func noWorkspace(t *testing.T, job string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "golaunch-*", "*", ".workspaces", "trees", job+"-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("directories of jobs are left: %v (%v)", left, err)
	}
}

// TestWorkspaceOnACluster checks that the ranks run in the submitter's directory on all nodes, that
// the directory has its newest content there, and that each job has its own copy.
func TestWorkspaceOnACluster(t *testing.T) {
	t.Parallel()
	h, coordinator, n10, n9 := up(t, 1)
	h.dir = project(t)
	job := []string{"--coordinator", h.at, "--workspace", ".", "-N", "2", "-g", "1", "--backoff", "0s", "--"}
	p := h.start(1, append(job, "sh", "train.sh")...)
	p.line("0 " + projectSeen)
	p.line("1 " + projectSeen)
	ended(t, p)
	must(t, os.WriteFile(filepath.Join(h.dir, "lib/part"), []byte("two\n"), 0o600))
	if out := ended(t, h.start(0, append(job, "cat", "lib/part")...)); strings.Contains(out, "one") || strings.Count(out, "two\n") != 2 {
		t.Errorf("after a change the ranks print %q", out)
	}
	// Files that a rank writes stay for the job's next attempt, and no other job sees them.
	out := ended(t, h.start(0, append(job, "sh", "-c", "[ -f mine ] && echo again || { touch mine; exit 1; }")...))
	if !strings.Contains(out, "[r0 n9] again") || !strings.Contains(out, "[r1 n10] again") {
		t.Errorf("later attempts print %q", out)
	}
	if out := ended(t, h.start(0, append(job, "ls")...)); strings.Contains(out, "mine") {
		t.Errorf("another job sees %q", out)
	}
	h.detach("w", 2, "--workspace", ".", "-N", "2", "-g", "1", "--", "sh", "-c", hung)
	if w := h.status().job(t, "w").Workspace; w == nil || len(w.ID) != 12 || w.Files != 3 || w.Bytes < 1000 {
		t.Errorf("the status has the workspace %+v", w)
	}
	if out := h.do("status", "w"); !regexp.MustCompile(`workspace [0-9a-f]{12} \(3 files, [0-9.]+ KiB\)`).MatchString(out) {
		t.Errorf("status prints %s", out)
	}
	// A node that comes later gets the workspace, although the submitter's directory has changed
	// meanwhile.
	must(t, os.RemoveAll(filepath.Join(h.dir, "lib")))
	n9.cmd.Process.Kill()
	n9.wait()
	n9 = h.join(2, "n8", 1)
	follow := h.start(0, "logs", "-f", "w")
	follow.line(`n8\] up`)
	h.do("stop", "w")
	for _, p := range []*process{n10, n9, coordinator} {
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.wait()
	}
	noWorkspace(t, "w")
}

// TestWorkspaceOfARendezvous checks that the ranks of all nodes run in the workspace of the first
// node.
func TestWorkspaceOfARendezvous(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	dir := project(t)
	args := []string{"--workspace", "project", "--nodes", "2", "--procs-per-node", "1", "--", "sh", "train.sh"}
	first, second := join(t, nodes[0], "a", token, args...), join(t, nodes[1], "b", token, args...)
	first.Dir, second.Dir = t.TempDir(), t.TempDir()
	must(t, os.Symlink(dir, filepath.Join(first.Dir, "project")))
	a, b := start(t, first), start(t, second)
	a.line(projectSeen)
	b.line(projectSeen)
	ended(t, a)
	ended(t, b)
}

// TestWorkspaceOfASimulation checks that simulated nodes also have the workspace, each in a
// directory of its own.
func TestWorkspaceOfASimulation(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "--simulate", "--nodes", "2", "-g", "1", "--workspace", project(t), "--", "sh", "-c", "touch rank$RANK; sh train.sh"))
	p.line(`0 has one in \.gitignore lib rank0 train\.sh`)
	p.line(`1 has one in \.gitignore lib rank1 train\.sh`)
	ended(t, p)
}

// TestWorkspaceOverSSH checks that the machines do not need the submitter's directory.
func TestWorkspaceOverSSH(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	dir := project(t)
	p := onHosts(t, h, "--hosts", "n1,n2", "-n", "1", "--workspace", dir, "--", "sh", "train.sh")
	p.line("0 " + projectSeen)
	p.line("1 " + projectSeen)
	ended(t, p)
	left(t, h)
}

// TestWorkspaceOutlivesItsAgent checks that the ranks of a killed agent keep their directory,
// although another process removes the directories of dead processes, and that the directory is
// removed at the end of the job.
func TestWorkspaceOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.coordinate()
	h.dir = project(t)
	n10 := h.adopting(1, "n10")
	end := filepath.Join(t.TempDir(), "end")
	job := h.start(0, "--coordinator", h.at, "--workspace", ".", "-g", "1", "--max-restarts", "0", "--", "sh", "-c",
		"echo runs; while [ ! -e "+end+" ]; do sleep 0.01; done; sh train.sh")
	job.line("runs")
	n10.kill()
	c := workspace.NewCache(filepath.Join(h.adoptDir(), "n10", ".workspaces"))
	a, err := c.Pack(t.TempDir(), 1)
	must(t, err)
	defer a.Close()
	other := c.NewDirectory("other")
	must(t, other.Make(a, nil))
	must(t, other.Remove())
	n10 = h.adopting(1, "n10")
	must(t, os.WriteFile(end, nil, 0o600))
	job.line("0 " + projectSeen)
	ended(t, job)
	n10.cmd.Process.Signal(syscall.SIGTERM)
	n10.wait()
	if left, err := os.ReadDir(filepath.Join(h.adoptDir(), "n10", ".workspaces", "trees")); err != nil || len(left) > 0 {
		t.Errorf("directories of jobs are left: %v (%v)", left, err)
	}
}

// TestWorkspaceOutlivesItsCoordinator checks that a job in the queue gets its workspace from the
// next coordinator.
func TestWorkspaceOutlivesItsCoordinator(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, golaunch(t), "--lease", "5s")
	s.dir = project(t)
	s.ask("--coordinator", s.at, "--detach", "--job-id", "w", "--workspace", ".", "--gpus-per-node", "1", "--", "sh", "train.sh")
	for _, home := range s.homes[1:] {
		copied := filepath.Join(home, ".golaunch", "*", ".workspaces", "*.tar")
		for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if found, err := filepath.Glob(copied); err != nil || len(found) == 1 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("no copy %s", copied)
			}
		}
	}
	must(t, os.RemoveAll(s.dir))
	s.dir = s.home
	s.leads[0].kill()
	s.start("agent", "--coordinator", s.at, "--name", "n9", "--num-gpus", "1").line("n9 .* is in the cluster of ")
	if out := s.ask("logs", "-f", "--coordinator", s.at, "w"); !regexp.MustCompile("0 " + projectSeen).MatchString(out) {
		t.Errorf("after the loss of its coordinator the job prints %q", out)
	}
}

// stalls is a proxy to the coordinator, on a node, that stops after it has forwarded a number of
// bytes to the node. It then closes paused.
func (h *heads) stalls(node int, after int64) (at string, paused chan struct{}) {
	h.t.Helper()
	var l net.Listener
	h.nodes[node].Do(h.t, func() {
		var err error
		l, err = net.Listen("tcp", net.JoinHostPort(h.nodes[node].Addr.String(), "0"))
		must(h.t, err)
	})
	h.t.Cleanup(func() { l.Close() })
	var far net.Conn
	h.nodes[0].Do(h.t, func() {
		var err error
		far, err = net.Dial("tcp", h.at)
		must(h.t, err)
	})
	h.t.Cleanup(func() { far.Close() })
	paused = make(chan struct{})
	go func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		go func() {
			_, _ = io.Copy(far, near)
			far.Close()
		}()
		_, _ = io.CopyN(near, far, after)
		close(paused)
		<-h.t.Context().Done()
	}()
	return l.Addr().String(), paused
}

// TestWorkspaceIsCutOff kills an agent while a workspace arrives. It checks that no partial
// workspace is used, and that the job goes on when the agent is back.
func TestWorkspaceIsCutOff(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.dir = project(t)
	big := make([]byte, 32<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	must(t, os.WriteFile(filepath.Join(h.dir, "big"), big, 0o600))
	h.coordinate()
	at, paused := h.stalls(1, 8<<20)
	n10 := h.start(1, "agent", "--coordinator", at, "--name", "n10", "--num-gpus", "1")
	n10.line("n10 .* is in the cluster of ")
	p := h.start(0, "--coordinator", h.at, "--workspace", ".", "-g", "1", "--", "sh", "-c", "cksum < big; sh train.sh")
	<-paused
	n10.cmd.Process.Kill()
	n10.wait()
	h.join(1, "n10", 1)
	sum, err := exec.Command("cksum", filepath.Join(h.dir, "big")).Output()
	must(t, err)
	want := strings.Join(strings.Fields(string(sum))[:2], " ")
	if out := ended(t, p); !strings.Contains(out, want) {
		t.Errorf("the ranks print %q, want %q", out, want)
	}
	parts, err := filepath.Glob(filepath.Join(os.TempDir(), "golaunch-*", "n10", ".workspaces", "*.part"))
	if err != nil || len(parts) > 0 {
		t.Errorf("parts of workspaces are left: %v (%v)", parts, err)
	}
}

// TestWorkspacesThatMakeNoSense checks that bad directories are refused in one line, before anything
// is sent.
func TestWorkspacesThatMakeNoSense(t *testing.T) {
	dir := project(t)
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--workspace", "/nowhere"}, "workspace /nowhere: no such file or directory; name the directory on this machine that the ranks need"},
		{[]string{"--workspace", dir}, `"pipe" cannot travel: it is a FIFO; remove it, or list it in .rayignore`},
		{[]string{"--workspace", dir, "--workspace-limit", "2"}, "it has more than 2 bytes, the limit"},
		{[]string{"--workspace", dir, "--workspace-limit", "many"}, `"many": a number of bytes, or one with KiB, MiB or GiB, such as 2GiB`},
		{[]string{"--workspace", dir, "--workspace-limit", "9GiB"}, "workspace limit 9663676416: at most 8 GiB"},
		{[]string{"--workspace", dir, "--dir", "/tmp"}, `working directory "/tmp": with a workspace, a directory in it`},
		{[]string{"--workspace", dir, "--dir", "../x"}, `working directory "../x": with a workspace, a directory in it`},
	} {
		p := start(t, exec.Command(golaunch(t), append(test.args, "-n", "1", "--", "true")...))
		if code, words := p.wait(); code != 2 || !strings.Contains(words, test.want) || strings.Count(words, "\n") != 1 {
			t.Errorf("%q: code %d and %q, want one line with %q", test.args, code, words, test.want)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, ".rayignore"), []byte("pipe\n"), 0o600))
	p := start(t, exec.Command(golaunch(t), "plan", "--workspace", dir, "--explain", "-n", "1", "--", "true"))
	code, out := p.wait()
	if want := regexp.MustCompile(`(?m)^workspace [0-9a-f]{12} \(4 files, [0-9.]+ KiB\) from ` + regexp.QuoteMeta(dir)); code != 0 || !want.MatchString(out) {
		t.Errorf("plan --explain: code %d and %s", code, out)
	}
}
