package forkserver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// liar is a server that answers an order with given words, and makes no process. It fills in its
// own number and the number of one of its threads.
const liar = `
import os, socket, struct, sys, threading
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
server = socket.socket(fileno=0)
data, fds, _, _ = socket.recv_fds(server, 4, 1)
golaunch = socket.socket(fileno=fds[0])
def say(*words):
    body = b"".join(w.encode() + b"\0" for w in words)
    golaunch.sendall(struct.pack(">I", len(body)) + body)
say("pid", sys.argv[1].format(server=os.getpid(), thread=thread.native_id))
say(sys.argv[2])
try:
    while golaunch.recv(1 << 16):
        pass
except ConnectionResetError:
    pass
stop.set()
`

// witness is a process that echoes its input as long as it lives.
type witness struct {
	*testing.T
	pid    int
	in     io.Writer
	out    *bufio.Reader
	limit  func(time.Time) error
	cgroup string
}

// newWitness starts a witness in a process group of its own. Its parent is golaunch, or golaunch's
// parent.
func newWitness(t *testing.T, script string, start func(stdin, stdout *os.File) error) *witness {
	t.Helper()
	in, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = told.Close(), said.Close() })
	if start == nil {
		start = func(stdin, stdout *os.File) error { return startStranger(t, script, stdin, stdout) }
	}
	err = start(in, out)
	_, _ = in.Close(), out.Close()
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{T: t, in: told, out: bufio.NewReader(said), limit: said.SetReadDeadline}
	if w.pid, err = strconv.Atoi(w.line()); err != nil {
		t.Fatal(err)
	}
	w.cgroup = w.place()
	return w
}

func startStranger(t *testing.T, script string, stdin, stdout *os.File) error {
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Stdin, cmd.Stdout = "/", stdin, stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if rights := nobody(); rights != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: rights.UID, Gid: rights.GID}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return nil
}

// nobody returns the rights of the user nobody, under which the tests of root run processes. It
// returns nil for any other user.
func nobody() *safefile.Rights {
	if os.Geteuid() != 0 {
		return nil
	}
	return &safefile.Rights{UID: 65534, GID: 65534}
}

func (w *witness) line() string {
	w.Helper()
	if err := w.limit(time.Now().Add(patience)); err != nil {
		w.Fatal(err)
	}
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.Fatalf("process %d does not answer: %v", w.pid, err)
	}
	return strings.TrimSpace(line)
}

func (w *witness) place() string {
	w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", w.pid))
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// untouched checks that the witness was neither moved nor signalled: a process that receives
// SIGKILL runs no further instruction.
func (w *witness) untouched() {
	w.Helper()
	if now := w.place(); now != w.cgroup {
		w.Errorf("process %d was in the cgroups\n%sand is in\n%s", w.pid, w.cgroup, now)
	}
	if _, err := io.WriteString(w.in, "again\n"); err != nil {
		w.Fatal(err)
	}
	if got := w.line(); got != "again" {
		w.Errorf("process %d says %q", w.pid, got)
	}
}

// lie starts a server that names a process, and then sends further words.
func (w *world) lie(python, pid, then string) *Server {
	w.Helper()
	conn, stdin, err := Pair()
	if err != nil {
		w.Fatal(err)
	}
	argv := []string{python, "-c", liar, pid, then}
	sc := w.scope("server")
	_, err = sc.Start(proc.Command{Path: python, Args: argv, Env: w.env, Dir: w.dir, Stdin: stdin, Stderr: os.Stderr, Serves: true})
	_ = stdin.Close()
	if err != nil {
		w.Fatal(err)
	}
	s := Share(conn, Program{Interpreter: python})
	w.Cleanup(func() { _ = s.Close() })
	return s
}

// TestAServerThatLies checks servers that name some other process as the rank that they have made.
// A server may be the process of another user, and golaunch may be root: it must do nothing to a
// process that the server has not made. It starts the rank without the server.
func TestAServerThatLies(t *testing.T) {
	w := newWorld(t)
	shim := pythons(t)[0]
	python, err := exec.Command(shim, "-c", "import sys; print(sys.executable, end='')").Output() // sys.executable starts in a tenth of the time of a shim
	if err != nil {
		t.Fatal(err)
	}
	const itself, childOf = "echo $$; exec cat", "exec 3<&0; cat <&3 & echo $!; wait"
	child, stranger := newWitness(t, itself, nil), newWitness(t, childOf, nil)
	ranks := w.scope("ranks")
	rank := newWitness(t, "", func(stdin, stdout *os.File) error {
		_, err := ranks.Start(proc.Command{Path: "/bin/sh", Args: []string{"sh", "-c", itself}, Dir: "/", Stdin: stdin, Stdout: stdout, Rights: nobody()})
		return err
	})
	witnesses := []*witness{child, stranger, rank}
	for name, pid := range map[string]string{
		"another's process": strconv.Itoa(stranger.pid), "its group": strconv.Itoa(-stranger.pid), "a child of another session": strconv.Itoa(child.pid),
		"a rank": strconv.Itoa(rank.pid), "the server": "{server}", "its thread": "{thread}", "golaunch": strconv.Itoa(os.Getpid()),
		"the group": "0", "init": "1", "all": "-1", "a number and 32 bits": strconv.Itoa(1<<32 + child.pid), "no number": "all",
		"a large number": "99999999999999999999", "nothing": "", "the largest": "2147483647",
	} {
		for _, then := range []string{"session", "nothing of it"} {
			t.Run(name+", "+then, func(t *testing.T) {
				if n, err := strconv.Atoi(pid); err == nil && n <= 1 && number([]string{"pid", pid}) != 0 {
					t.Fatalf("%s is taken for a process", pid) // do not try the number, because golaunch would then end processes of this machine
				}
				w := &world{T: t, supervisor: w.supervisor, env: w.env, dir: w.dir}
				s := w.lie(string(python), pid, then)
				defer func() {
					for _, witness := range witnesses {
						witness.untouched()
					}
				}()
				w.startedWithout(s)
			})
		}
	}
}

// refusal matches the result of a lie.
var refusal = regexp.MustCompile(`^(the fork server does not behave: process -?\d+ is no fork of it: .+|unexpected message from the fork server: \["pid" ".*"\])$`)

// startedWithout starts a rank with a server that lies, and checks that the rank runs without the
// server. A second start, which must fork, then fails.
func (w *world) startedWithout(s *Server) {
	w.Helper()
	c := proc.Command{Path: "/bin/true", Args: []string{s.Program().Interpreter, "-c", "pass"}, Dir: "/", Forker: s, Rights: nobody()}
	p, err := w.scope("rank").Start(c)
	if err != nil {
		w.Fatal(err)
	}
	forked, why := p.Forked()
	if forked || why == nil || why != s.Err() || !refusal.MatchString(why.Error()) {
		w.Fatalf("forked %v because %v, and the server is broken because %v", forked, why, s.Err())
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		w.Fatal("the rank does not end")
	}
	if !p.Exit().OK() {
		w.Errorf("%+v", p.Exit())
	}
	c.ForkOnly = true
	if _, err := w.scope("strict").Start(c); err == nil || !strings.Contains(err.Error(), why.Error()) {
		w.Errorf("with a broken server alone: %v", err)
	}
}

// TestAForkOfAnotherUser checks that golaunch takes no process of another user than the rank's for
// a fork, whichever server names it.
func TestAForkOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root has ranks of other users")
	}
	w := newWorld(t)
	argv := []string{pythons(t)[0], "-c", "pass"}
	s, server := w.server(argv)
	c := proc.Command{Path: "/bin/true", Args: argv, Dir: "/", Env: w.env, Forker: s, Rights: nobody()}
	p, err := w.scope("rank").Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if forked, why := p.Forked(); forked || why == nil || !strings.Contains(why.Error(), "does not run as uid 65534") {
		t.Errorf("forked %v: %v", forked, why)
	}
	if !p.Exit().OK() || unix.Kill(server.Pid(), 0) != nil {
		t.Errorf("%+v", p.Exit())
	}
}
