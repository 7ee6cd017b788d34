package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// walter is a user who exists only on the node that runs ranks as their submitters.
const walter = 1234

// shared is a cluster of several users: the coordinator is on the first node, the agent n10 on the
// second, and the third node has no agent.
type shared struct {
	*heads
	// place is a directory that all users can reach, and command is the golaunch in it.
	place, command, token string
	env                   []string
	head                  *process
}

// newShared takes an environment for the coordinator and the clients.
func newShared(t *testing.T, env ...string) *shared {
	t.Helper()
	place, err := os.MkdirTemp("/tmp", "golaunch-users-") //nolint:usetesting // others must reach it
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(place)) })
	must(t, os.Chmod(place, 0o755))
	nodes, _ := cluster(t)
	s := &shared{heads: &heads{t: t, nodes: nodes, home: filepath.Join(place, "root"), dir: place, at: clusterAt}, place: place, env: env}
	must(t, os.Mkdir(s.home, 0o700))
	s.give("walter", walter, 0o700)
	s.write("passwd", "root:x:0:0:root:/root:/bin/sh\nwalter:x:1234:1235::"+s.file("walter")+":/bin/bash\n")
	s.write("group", "root:x:0:\nwalters:x:1235:\nfriends:x:1236:walter\n")
	s.command = s.file("golaunch")
	// Another process writes the file: a child that this process forks for another test would hold
	// it open for writing, and then the file cannot be run.
	must(t, exec.Command("install", "-m", "755", golaunch(t), s.command).Run())
	s.head = start(t, s.nodes[0].Command(s.command, "coordinator", "--listen", "10.77.0.2"), append(env, "HOME="+s.home)...)
	s.head.line("golaunch agent --coordinator " + s.at)
	s.token = strings.TrimSpace(ended(t, s.start(0, "submit-token")))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shared) file(name string) string { return filepath.Join(s.place, name) }

func (s *shared) write(name, text string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.file(name), []byte(text), 0o644)) //nolint:gosec // others read it
}

// give makes a directory that belongs to a user.
func (s *shared) give(name string, uid int, mode os.FileMode) {
	s.t.Helper()
	must(s.t, os.Mkdir(s.file(name), mode))
	must(s.t, os.Chown(s.file(name), uid, uid))
}

// agent starts an agent of root, on a node that knows walter.
func (s *shared) agent(args ...string) *process {
	s.t.Helper()
	script := fmt.Sprintf(`mount --bind %s /etc/passwd && mount --bind %s /etc/group && exec "$0" "$@"`, s.file("passwd"), s.file("group"))
	cmd := s.nodes[1].Command(append([]string{
		"unshare", "--mount", "sh", "-c", script, s.command, "agent", "--coordinator", s.at, "--name", "n10", "--num-gpus", "2", "--as-submitter",
		"--log-dir", s.file("logs"),
	}, args...)...)
	p := start(s.t, cmd, "HOME="+s.home, "GOLAUNCH_COORDINATOR=", "GOLAUNCH_ALLOW_RUN_AS_ROOT=false", "XDG_CACHE_HOME=/root/.cache")
	p.line("n10 .* is in the cluster of ")
	return p
}

// submit runs golaunch on a node as a user.
func (s *shared) submit(on nettest.Node, uid int, args ...string) *process {
	s.t.Helper()
	id := fmt.Sprint(uid)
	cmd := on.Command(append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", s.command}, args...)...)
	cmd.Dir = s.place
	return start(s.t, cmd, append(s.env, "HOME="+s.file("walter"), "GOLAUNCH_COORDINATOR="+s.at, "GOLAUNCH_TOKEN="+s.token)...)
}

// belongs checks that a directory and everything in it belong to a user.
func (s *shared) belongs(dir string, uid uint32) {
	s.t.Helper()
	files := 0
	must(s.t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(s.t, err)
		info, err := os.Lstat(path)
		must(s.t, err)
		files++
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != uid || info.IsDir() && info.Mode().Perm() != 0o700 {
			s.t.Errorf("%s is uid %d's: %v", path, owner, info.Mode())
		}
		return nil
	}))
	if files < 3 {
		s.t.Errorf("in %s are %d files", dir, files)
	}
}

// TestASubmitterElsewhere: munge identifies the submitter, by a credential for the connection.
func TestASubmitterElsewhere(t *testing.T) {
	t.Parallel()
	s := newShared(t, "SLURM_CONF="+slurmtest.Munge(t))
	s.agent()
	s.submit(s.nodes[2], walter, "--job-id", "a", "--", "sh", "-c", "echo I am $(id -u)").ends(0, "I am 1234\n")
	s.submit(s.nodes[2], 0, "--job-id", "b", "--", "true").ends(125, "root submitted the job")
	if uid := s.status().job(t, "a").Submitter; uid == nil || *uid != walter {
		t.Errorf("status says uid %v", uid)
	}
}

// TestRootsJobsRunWhereTheyMay: root's jobs run only where they are allowed. There, too, other
// users' jobs run as these users.
func TestRootsJobsRunWhereTheyMay(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.agent("--allow-run-as-root")
	for _, uid := range []int{0, walter} {
		job := s.submit(s.nodes[0], uid, "--job-id", fmt.Sprint("of-", uid), "--", "sh", "-c", "echo I am $(id -u)")
		job.ends(0, fmt.Sprintf("I am %d\n", uid))
	}
}

const whoami = `echo $(id -u) $(id -g) $(id -G) $USER $LOGNAME $SHELL $HOME ${XDG_CACHE_HOME-none} $(grep CapEff /proc/self/status | cut -f2)
echo again >/dev/stdout; echo and again >/dev/stderr; echo beat >$GOLAUNCH_HEARTBEAT_FILE; exit 3`

// TestRanksAreTheirSubmitters: ranks and their files belong to the user who submitted the job.
func TestRanksAreTheirSubmitters(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.agent()
	job := s.submit(s.nodes[0], walter, "--job-id", "a", "--max-restarts", "0", "--gpus-per-node", "2", "--", "sh", "-c", whoami)
	job.ends(3, "1234 1235 1235 1236 walter walter /bin/bash "+s.file("walter")+" none 0000000000000000\n", "again\n", "and again\n")
	s.belongs(s.file("logs/n10/a"), walter)
	if names, err := filepath.Glob(s.file("logs/n10/a/bundle-*")); err != nil || len(names) != 1 {
		t.Errorf("the evidence of its failure: %v, %v", names, err)
	}
	for _, dir := range []string{"logs", "logs/n10"} {
		if info, err := os.Stat(s.file(dir)); err != nil || info.Mode().Perm() != 0o711 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if uid := s.status().job(t, "a").Submitter; uid == nil || *uid != walter {
		t.Errorf("status says uid %v", uid)
	}
	if text := ended(t, s.submit(s.nodes[0], walter, "logs", "a")); !strings.Contains(text, "1234 1235") {
		t.Errorf("its output: %s", text)
	}
	for id, c := range map[string]struct {
		on   nettest.Node
		uid  int
		args []string
		code int
		want string
	}{
		"root":    {s.nodes[0], 0, nil, 125, "root submitted the job, and this node runs nothing as root"},
		"nobody":  {s.nodes[0], 4321, nil, 125, "uid 4321 is no user here"},
		"distant": {s.nodes[2], walter, nil, 125, "the coordinator does not know that user"},
		"port":    {s.nodes[0], walter, []string{"--master-port", "80"}, 125, "only root may listen there"},
	} {
		p := s.submit(c.on, c.uid, append(append([]string{"--job-id", id, "--max-restarts", "0"}, c.args...), "--", "sh", "-c", "echo up; exit 9")...)
		if p.ends(c.code, c.want); strings.Contains(p.said(), "up\n") {
			t.Errorf("the ranks of %s have run", id)
		}
	}
}

// TestForksAreTheirSubmitters: forks also belong to their submitter, in the cgroup of their
// attempt.
func TestForksAreTheirSubmitters(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.agent()
	s.write("slow.py", "import os\npid = int(os.readlink(\"/proc/self\"))\n")
	job := s.submit(s.nodes[0], walter, "--preload", "slow", "--procs-per-node", "2", "--env", "PYTHONPATH="+s.place, "--", python, "-c",
		`import os, slow
held = any("-attempt-0" in line for line in open("/proc/self/cgroup"))
print("user", os.getuid(), os.getgid(), os.getgroups(), "forked", slow.pid != os.getpid(), "held", held)`)
	job.ends(0, "user 1234 1235 [1235, 1236] forked True held True\n")
	if text := job.said(); strings.Count(text, "forked True held True") != 2 {
		t.Errorf("not all were forked:\n%s", text)
	}
}

// said returns all output so far.
func (p *process) said() string {
	text, _ := p.out.read()
	return text
}

// TestRootDoesNothingForASubmitter: root reads, runs, writes or removes nothing for a submitter
// that the submitter could not.
func TestRootDoesNothingForASubmitter(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.agent()
	run := func(id string, code int, want string, args ...string) {
		t.Helper()
		s.submit(s.nodes[0], walter, append([]string{"--job-id", id, "--max-restarts", "0", "--log-dir"}, args...)...).ends(code, want)
	}
	script := []string{"--", "sh", "-c", "echo up; echo '{\"message\":\"oh\"}' >$TORCHELASTIC_ERROR_FILE; exit 4"}
	with := func(dir string, more ...string) []string {
		return append(append([]string{s.file(dir)}, more...), script...)
	}

	run("own", 4, "", with("walter/logs")...)
	s.belongs(s.file("walter/logs/own"), walter)
	run("closed", 125, "permission denied", with("root/logs")...)
	run("foreign", 125, "permission denied", with("new")...)
	if _, err := os.Stat(s.file("new")); err == nil {
		t.Error("root has made a directory for him")
	}
	s.give("trap", walter, 0o700)
	must(t, os.Symlink(s.home, s.file("trap/link")))
	run("link", 125, "permission denied", with("trap/link")...)

	// A file in a submitter's directory may still belong to another user.
	const kept = "root's own"
	s.write("kept", kept)
	must(t, os.Chmod(s.file("kept"), 0o600))
	for _, dir := range []string{"trap/hard", "trap/hard/attempt-0", "trap/soft", "trap/soft/attempt-0"} {
		s.give(dir, walter, 0o700)
	}
	must(t, os.Link(s.file("kept"), s.file("trap/hard/attempt-0/rank-0.stdout.log")))
	must(t, os.Symlink("../../../kept", s.file("trap/soft/attempt-0/rank-0.stdout.log")))
	for _, id := range []string{"hard", "soft"} {
		run(id, 4, "", with("trap")...)
		if text, err := os.ReadFile(s.file("kept")); err != nil || string(text) != kept {
			t.Errorf("%s: root has written %q, %v", id, text, err)
		}
		if text := s.submit(s.nodes[0], walter, "logs", id); strings.Contains(text.all(), kept) {
			t.Errorf("%s: root has read it to him", id)
		}
	}
	must(t, os.WriteFile(s.file("tool"), []byte("#!/bin/sh\necho up\n"), 0o700)) //nolint:gosec // root runs it
	run("tool", 126, "is it executable", s.file("walter/logs"), "--", s.file("tool"))
	run("place", 126, "cannot enter the working directory", s.file("walter/logs"), "--dir", s.home, "--", "true")
}

// all waits for the end, with any exit code.
func (p *process) all() string {
	p.t.Helper()
	_, text := p.wait()
	return text
}

// TestRanksOfASubmitterOutliveTheirAgent: the ranks still belong to the user, and the next agent
// continues their files.
func TestRanksOfASubmitterOutliveTheirAgent(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	first := s.agent("--adopt")
	job := s.submit(s.nodes[0], walter, "--job-id", "a", "--max-restarts", "1", "--backoff", "0s", "--", "sh", "-c",
		`echo up $(id -u) in attempt $GOLAUNCH_ATTEMPT; while [ ! -e `+s.file("go")+` ]; do sleep 0.05; done; echo on; rm -f `+s.file("walter/go")+`; exit 5`)
	job.line("up 1234")
	first.kill()
	s.agent("--adopt")
	s.touch("go")
	job.ends(5, "on\n")
	if text := ended(t, s.start(0, "logs", "a")); strings.Count(text, "up 1234") != 2 || strings.Count(text, "on\n") != 2 {
		t.Errorf("its output:\n%s", text)
	}
	s.belongs(s.file("logs/n10/a"), walter)
}

// TestOnlyRootCanRunOthersRanks: an agent of another user fails at once.
func TestOnlyRootCanRunOthersRanks(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(golaunch(t), "agent", "--coordinator", "127.0.0.1:1", "--as-submitter")
	if os.Getuid() == 0 {
		s := newShared(t)
		s.submit(s.nodes[1], walter, "agent", "--coordinator", s.at, "--as-submitter").ends(2, "must be root")
		cmd = exec.Command(golaunch(t), "agent", "--coordinator", "127.0.0.1:1")
		start(t, cmd, "GOLAUNCH_ALLOW_RUN_AS_ROOT=false").ends(2, "--as-submitter (ranks run as the user who submitted their job)")
		return
	}
	start(t, cmd).ends(2, "must be root")
}
