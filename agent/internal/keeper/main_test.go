package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// patience bounds every wait for a process in these tests.
const patience = time.Minute

// agentVar, in the environment, makes the test program an agent that leaves something behind, see
// plan.
const agentVar = "KEEP_TEST_AGENT"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(agentVar)
	if !ok {
		os.Exit(m.Run())
	}
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	if err := p.carryOut(); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	select {} // until it is killed
}

// plan is what an agent does before it prints "ready".
type plan struct {
	Dir string
	// Lease is how long the agent's lease lasts from its start.
	Lease time.Duration
	// Scripts are ranks. Each prints a line when it is up.
	Scripts []string
	// Dial is an address to keep a connection to. Store serves a store with a key.
	Dial  string
	Store bool
	// Lock is a file that the agent locks and keeps with the job.
	Lock string
}

func (p plan) carryOut() error {
	k, err := Open(p.Dir, func(err error) { fmt.Println("warning:", err) })
	if err != nil {
		return err
	}
	k.Renew(procfs.BootTime() + p.Lease)
	if p.Dial != "" {
		if _, err := k.Dial(dialer(p.Dial))(nil); err != nil {
			return err
		}
	}
	k.Joined([]byte("the agent"))
	k.Put("job", []byte("its task"))
	k.Put("over", nil)
	k.Drop("over")
	if p.Lock != "" {
		f, err := os.Open(p.Lock)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err = errors.Join(err, k.Keep("job", f)); err != nil {
			return err
		}
	}
	if p.Store {
		if err := serveStore(k); err != nil {
			return err
		}
	}
	sc, err := k.Scope("attempt", []byte("its order"))
	if err != nil {
		return err
	}
	for i, script := range p.Scripts {
		if err := startKept(sc, script, fmt.Sprint("rank ", i)); err != nil {
			return err
		}
	}
	if _, err := k.ask(message{Do: doKill, ID: -1}); err != nil { // all earlier messages have arrived
		return err
	}
	fmt.Println("ready")
	return nil
}

func startKept(sc *Scope, script, data string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = sc.Start(proc.Command{Path: "sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: w}, []byte(data), r)
	return err
}

// agent runs an agent until it is ready.
func agent(t *testing.T, p plan) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(p)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), agentVar+"="+string(text))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { die(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the agent says %q, %v", line, err)
	}
	return cmd
}

func die(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// open opens the keeper as the next agent. What it finds dies with the test. Each warning must
// contain one of words.
func open(t *testing.T, dir string, words ...string) *Keeper {
	t.Helper()
	k, err := Open(dir, func(err error) {
		if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Error(err)
		}
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, k.End())
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left in the directory, %v", left, err)
		}
	})
	return k
}

// ended waits until a process has ended. The process need not be a child of this process.
func ended(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	must(t, err)
	defer unix.Close(fd)
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for n := 0; n == 0; {
		if n, err = unix.Poll(poll, int(patience.Milliseconds())); err == unix.EINTR {
			n = 0
		} else if n == 0 {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

// parent returns the process that has started another.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	var state string
	var ppid int
	_, err = fmt.Sscan(string(stat[strings.LastIndex(string(stat), ")")+1:]), &state, &ppid)
	must(t, err)
	return ppid
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
