package keeper

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// long is a lease that no test waits for.
const long = time.Minute

// TestLeft checks that an agent finds everything that a killed agent left, even after another agent
// has found it and left it again.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	die(agent(t, plan{Dir: dir, Lease: long, Store: true, Scripts: []string{
		"echo first; read end; exit 7", "echo second; exec sleep 1000", "echo third; kill -9 $$",
	}}))
	first, err := Open(dir, func(err error) { t.Error(err) })
	must(t, err)
	pids := func(k *Keeper) (pids []int) {
		for _, r := range k.Left.Scopes[0].Ranks {
			pids = append(pids, r.Process.Pid())
			frame.Close(r.Files)
		}
		return pids
	}
	before := pids(first)
	must(t, first.Leave())
	k := open(t, dir, "it is not a node of the job")
	left := k.Left
	if string(left.Membership) != "the agent" || len(left.Jobs) != 1 || string(left.Jobs["job"]) != "its task" {
		t.Errorf("it finds %q and %q", left.Membership, left.Jobs)
	}
	if end := left.Lease - procfs.BootTime(); end <= 0 || end > long {
		t.Errorf("the lease ends in %v", end)
	}
	if len(left.Scopes) != 1 || string(left.Scopes[0].Data) != "its order" || len(left.Scopes[0].Ranks) != 3 {
		t.Fatalf("it finds %+v", left.Scopes)
	}
	sc := left.Scopes[0]
	for _, i := range []int{0, 2, 1} {
		want := []struct {
			data, wrote  string
			code, signal int
		}{{"rank 0", "first\n", 7, 0}, {"rank 1", "second\n", 128 + 15, 15}, {"rank 2", "third\n", 128 + 9, 9}}[i]
		r := sc.Ranks[i]
		pipe := os.NewFile(uintptr(r.Files[0]), "pipe")
		wrote, err := bufio.NewReader(pipe).ReadString('\n')
		must(t, errors.Join(err, pipe.Close()))
		if i == 1 {
			must(t, sc.Stop(unix.SIGTERM, false, patience))
		}
		exit := r.Process.Exit()
		if string(r.Data) != want.data || wrote != want.wrote || exit.Code != want.code || exit.Signal != want.signal {
			t.Errorf("%q wrote %q, %v, want %+v", r.Data, wrote, exit, want)
		}
		if at := r.Process.At(); at.IsZero() || at.After(time.Now()) || r.Process.Pid() != before[i] {
			t.Errorf("%s ended at %v, process %d, and %d before", r.Data, at, r.Process.Pid(), before[i])
		}
	}
	sees(t, left.Stores["job"])
	must(t, sc.Close())
	sc.Forget()
	must(t, sc.Kill()) // there is nothing to kill
}

// TestAFileOfAJob checks that the keeper keeps a job's file, with its lock, after two agents have
// ended, and closes the file when the job is over.
func TestAFileOfAJob(t *testing.T) {
	dir, name := t.TempDir(), t.TempDir()
	die(agent(t, plan{Dir: dir, Lease: long, Lock: name}))
	first, err := Open(dir, func(err error) { t.Error(err) })
	must(t, err)
	must(t, first.Left.Files["job"].Close())
	must(t, first.Leave())
	other, err := os.Open(name)
	must(t, err)
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("after the end of two agents the file can be locked: %v", err)
	}
	k := open(t, dir)
	must(t, k.Left.Files["job"].Close())
	k.Drop("job")
	must(t, unix.Flock(int(other.Fd()), unix.LOCK_EX)) // blocks until the keeper has closed the file
}

func serveStore(k *Keeper) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return err
	}
	defer l.Close()
	own := netip.MustParseAddr("127.0.0.1")
	s, err := k.Serve("job", l, []netip.Addr{own}, own, []byte("its order"))
	if err != nil {
		return err
	}
	c, err := tcpstore.Dial(context.Background(), s.Addr(), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Set(context.Background(), "key", []byte("value"))
}

// sees checks that a store still has its key and answers requests.
func sees(t *testing.T, s *Store) {
	t.Helper()
	if s == nil || string(s.Data) != "its order" {
		t.Fatalf("the store is %+v", s)
	}
	c, err := tcpstore.Dial(t.Context(), s.Addr(), patience)
	must(t, err)
	defer c.Close()
	if value, err := c.Get(t.Context(), "key"); string(value) != "value" || err != nil {
		t.Errorf("the store has %q, %v", value, err)
	}
	<-s.Changes()
	if st := s.Status(); len(st.Clients) != 1 || st.Clients[0].PID != os.Getpid() {
		t.Errorf("its clients are %+v", st.Clients)
	}
	s.Admit([]netip.Addr{netip.MustParseAddr("10.0.0.1")}, netip.MustParseAddr("10.0.0.2"))
	s.Status() // the keeper handles this order after the earlier ones
	stranger, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.Addr()))
	must(t, err)
	eof(t, stranger)
	s.Close()
	for range s.Changes() {
		// wait for the end of the changes
	}
}

func TestNoAgentComes(t *testing.T) {
	dir := t.TempDir()
	l := listen(t)
	a := agent(t, plan{Dir: dir, Lease: long, Dial: l.Addr().String(), Scripts: []string{"trap '' TERM; sleep 1000"}})
	former, err := l.AcceptTCP()
	must(t, err)
	die(a)
	k, err := Open(dir, func(err error) { t.Error(err) })
	must(t, err)
	rank := k.Left.Scopes[0].Ranks[0].Process
	keeper := parent(t, rank.Pid())
	k.Renew(procfs.BootTime() + time.Second)
	must(t, k.Leave())
	proven(t, former, k.Proof)
	ended(t, rank.Pid())
	ended(t, keeper)
	if k := open(t, dir); k.Left.Membership != nil || len(k.Left.Scopes) > 0 {
		t.Errorf("it finds %+v", k.Left)
	}
}

// TestTheKeeperIsKilled checks that the ranks are dead when the receiver learns of the keeper's
// death.
func TestTheKeeperIsKilled(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir)
	l := listen(t)
	ours, err := k.Dial(dialer(l.Addr().String()))(t.Context())
	must(t, err)
	defer ours.Close()
	theirs, err := l.AcceptTCP()
	must(t, err)
	sc, err := k.Scope("attempt", nil)
	must(t, err)
	p, err := sc.Start(proc.Command{Path: "sleep", Args: []string{"sleep", "1000"}, Env: os.Environ()}, nil)
	must(t, err)
	must(t, unix.Kill(parent(t, p.Pid()), unix.SIGKILL))
	proven(t, theirs, k.Proof)
	<-k.Gone()
	if err := unix.Kill(p.Pid(), 0); err != unix.ESRCH {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("the rank lives: %s", stat)
		}
	}
	if exit := p.Exit(); exit.OK() {
		t.Errorf("an unseen end is %+v", exit)
	}
	if _, err := k.Scope("another", nil); !errors.Is(err, ErrGone) {
		t.Errorf("a keeper that is dead says %v", err)
	}
}

// TestAStoppedKeeperIsGivenUp stops a keeper and its guardian. Neither would ever end the ranks.
// The next keeper ends them before it keeps other ranks.
func TestAStoppedKeeperIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	k, err := Open(dir, func(error) {})
	must(t, err)
	sc, err := k.Scope("attempt", nil)
	must(t, err)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	p, err := sc.Start(proc.Command{Path: "sh", Args: []string{"sh", "-c", "setsid sleep 1000 & echo; wait"}, Env: os.Environ(), Stdout: w}, nil)
	must(t, err)
	must(t, w.Close())
	_, err = r.Read(make([]byte, 1))
	must(t, err)
	keeper := parent(t, p.Pid())
	guardian := child(t, keeper, "rankguard")
	must(t, unix.Kill(keeper, unix.SIGSTOP))
	must(t, unix.Waitid(unix.P_PID, keeper, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
	must(t, unix.Kill(guardian, unix.SIGSTOP))
	defer func() { must(t, unix.Kill(guardian, unix.SIGCONT)) }()
	k.limit.Reset(0) // as if hungLimit were over
	<-k.Gone()
	must(t, k.End())
	open(t, dir)
	// The kernel may close the open files of a dead process a moment after its death. A living
	// process keeps them open for 1,000 s.
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}, 20_000); n != 1 {
		t.Errorf("a process of a keeper that was given up lives when there is another: poll gives %d, %v", n, err)
	}
}

// child returns the child with a name that another process has started, or is about to start. No
// event reports when the child gets this name.
func child(t *testing.T, of int, name string) int {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		names, err := filepath.Glob("/proc/[0-9]*/comm")
		must(t, err)
		for _, path := range names {
			text, _ := os.ReadFile(path) // the process may have ended
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
			_, rest, _ := strings.Cut(string(stat), "("+name+") ")
			if f := strings.Fields(rest); string(text) == name+"\n" && len(f) > 1 && f[1] == strconv.Itoa(of) {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				must(t, err)
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child %s", of, name)
	return 0
}

// TestConnections checks when the peer of a connection sees its end: not when the agent dies, or
// when another agent opens the keeper, but when that agent has joined. If the agent closes the
// connection, the peer sees that at once.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	l := listen(t)
	accept := func() *net.TCPConn {
		c, err := l.AcceptTCP()
		must(t, err)
		return c
	}
	die(agent(t, plan{Dir: dir, Lease: long, Dial: l.Addr().String()}))
	former := accept()
	k := open(t, dir)
	dial := k.Dial(dialer(l.Addr().String()))
	second, err := dial(t.Context())
	must(t, err)
	seconds := accept()
	third, err := dial(t.Context())
	must(t, err)
	thirds := accept()
	defer third.Close()
	must(t, second.Close())
	eof(t, seconds)
	for _, c := range []*net.TCPConn{former, thirds} {
		must(t, c.SetReadDeadline(time.Unix(1, 0)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that is held reads %v", err)
		}
	}
	k.Joined(nil)
	eof(t, former)
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) { return net.Dial("tcp", addr) }
}

// proven checks that a connection ends with a proof and that nothing comes before the proof.
func proven(t *testing.T, c *net.TCPConn, proof [32]byte) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	said, err := io.ReadAll(c)
	if !bytes.Equal(said, proof[:]) || proof == [32]byte{} {
		t.Errorf("the connection ends with %x, %v, want %x", said, err, proof)
	}
	must(t, c.Close())
}

func eof(t *testing.T, c *net.TCPConn) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection that was released reads %v", err)
	}
	must(t, c.Close())
}

// TestStart checks that a process started by the keeper is like a process started here.
func TestStart(t *testing.T) {
	k := open(t, t.TempDir())
	sc, err := k.Scope("attempt", nil)
	must(t, err)
	here, err := os.Getwd()
	must(t, err)
	script := `[ "$ODD" = "$(printf '\377')" ] && [ "$PWD" = "` + here + `" ] && ! read line && ulimit -n`
	r, w, err := os.Pipe()
	must(t, err)
	p, err := sc.Start(proc.Command{Path: "sh", Args: []string{"sh", "-c", script}, Env: append(os.Environ(), "ODD=\xff"), Stdout: w}, nil)
	must(t, err)
	must(t, w.Close())
	said, err := io.ReadAll(r)
	must(t, err)
	if exit := p.Exit(); !exit.OK() || len(said) == 0 {
		t.Errorf("it ends with %+v, and says %q", exit, said)
	}
	_, err = sc.Start(proc.Command{Path: "no-such-program", Args: []string{"x"}, Env: os.Environ()}, nil)
	if start := (*proc.StartError)(nil); !errors.As(err, &start) || start.Exit.Code != 127 {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(dir, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("a second agent: %v", err)
	}
	anyones := t.TempDir()
	must(t, os.Chmod(anyones, 0o777))
	if _, err := Open(anyones, nil); err == nil {
		t.Error("in a directory where anyone can write")
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	if _, err := lockDir(fifo); !errors.Is(err, unix.ENOTDIR) { // Open calls Warn once it has found a directory
		t.Errorf("a FIFO that came in its place: %v", err)
	}
}

// TestNonsense checks that nonsense from an agent ends that agent. Without a lease it ends the
// keeper as well.
func TestNonsense(t *testing.T) {
	for _, words := range []string{"\xff\xff\xff\xff", "\x00\x00\x00\x02no", "\x00\x00\x00\x10{}"} {
		dir := t.TempDir()
		k := open(t, dir)
		_, err := k.link.conn.Write([]byte(words))
		must(t, err)
		if words[3] == 0x10 { // the frame promises more bytes than follow
			must(t, k.link.conn.CloseWrite())
		}
		<-k.Gone()
	}
}
