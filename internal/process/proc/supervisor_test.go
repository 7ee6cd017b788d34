package proc

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/process/proc/internal/record"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// patience bounds every wait of a test; working code stays far below it.
const patience = time.Minute

func TestMain(m *testing.M) {
	record.Base = os.Getenv("PROC_TEST_RECORDS")
	if plan := os.Getenv("PROC_TEST_SUPERVISE"); plan != "" {
		superviseHelper(plan)
	}
	if os.Getenv("PROC_TEST_EAT") != "" {
		eatMemory()
	}
	if os.Getenv("PROC_TEST_LEAVE_GROUP") != "" {
		leaveGroup()
	}
	if os.Getenv("PROC_TEST_PARENT") != "" {
		parent()
	}
	os.Exit(withRecords(m))
}

// withRecords makes supervisors of these tests find only processes that other supervisors of these
// tests have left.
func withRecords(m *testing.M) int {
	dir, err := os.MkdirTemp("", "records-")
	if err == nil {
		record.Base = dir
		err = os.Setenv("PROC_TEST_RECORDS", dir)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Println(err)
	}
	return code
}

// plan says what a helper process has to do. The helper is a supervisor that a test can kill. Its
// ranks write to its descriptor 3.
type plan struct {
	Script   string
	NoCgroup bool
	Lease    time.Duration
	// Hold says that descriptor 4 is a socket for the guardian.
	Hold bool
	// Cgroup is the directory of a cgroup to run in, unless it runs in the cgroup of the test.
	Cgroup string
	// Eat makes the supervisor stop its guardian, renew the lease and touch more memory than Cgroup
	// allows.
	Eat bool
}

// superviseHelper writes a line of facts and a line for each warning to stdout, and runs until it
// is killed.
func superviseHelper(text string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var p plan
	check(json.Unmarshal([]byte(text), &p))
	s, err := New(Options{Subreaper: true, noCgroup: p.NoCgroup, Warn: func(err error) { fmt.Println(err) }})
	check(err)
	if p.Cgroup != "" {
		// A guardian that starts when memory is short makes the kernel kill one more process.
		check(answer(s))
	}
	sc, err := s.Scope("helper")
	check(err)
	if p.Hold {
		socket := os.NewFile(4, "socket")
		check(s.Hold(socket))
		check(socket.Close())
	}
	out := os.NewFile(3, "output")
	rank, err := sc.Start(shell(p.Script, out))
	check(err)
	check(out.Close())
	s.Renew(p.Lease)
	if p.Lease > 0 {
		go func() { // runs until the guardian is stopped
			for range time.Tick(p.Lease / 10) {
				s.Renew(p.Lease)
			}
		}()
	}
	dir := ""
	if s.home != nil {
		dir = s.home.Dir
	}
	fmt.Printf("%d %x %s\n", s.guard.PID(), s.Proof(), dir)
	if p.Eat {
		check(unix.Kill(s.guard.PID(), unix.SIGSTOP))
		_, err := procfs.Wait(s.guard.PID(), unix.WSTOPPED|unix.WNOWAIT)
		check(err)
		s.Renew(0)
		eatMemory()
	}
	fmt.Printf("%+v\n", rank.Exit())
	select {}
}

// eatMemory touches more memory than the test's cgroup allows. It does so in one call, which ends
// before the stopped guardian is replaced.
func eatMemory() {
	_, err := unix.Mmap(-1, 0, 128<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	fmt.Println("128 MiB fit in 64: ", err)
	os.Exit(1)
}

// leaveGroup moves to its own process group, in the same session.
func leaveGroup() {
	if err := unix.Setpgid(0, 0); err != nil {
		fmt.Println(err)
	}
	fmt.Println("ready")
	select {}
}

func shell(script string, out *os.File) Command {
	return Command{
		Path: "sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Stdout: out, Stderr: os.Stderr,
	}
}

// output is a pipe whose write end all descendants of a rank hold: the end of file says that all
// are dead.
type output struct {
	t *testing.T
	r *bufio.Reader
	f *os.File
	w *os.File
}

func newOutput(t *testing.T) *output {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	must(t, r.SetReadDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { r.Close(); w.Close() })
	return &output{t, bufio.NewReader(r), r, w}
}

func (o *output) line() string {
	o.t.Helper()
	line, err := o.r.ReadString('\n')
	if err != nil {
		o.t.Fatalf("waiting for a line of a rank's output: %v", err)
	}
	return strings.TrimSpace(line)
}

// end closes this process's copy of the write end, waits until the last holder is dead, and returns
// the output.
func (o *output) end() string {
	o.t.Helper()
	o.w.Close()
	rest, err := io.ReadAll(o.r)
	if err != nil {
		o.t.Fatalf("a process lives on: %v", err)
	}
	return string(rest)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSupervisor(t testing.TB, opts Options) *Supervisor {
	t.Helper()
	if opts.Warn == nil {
		opts.Warn = func(err error) { t.Errorf("warning: %v", err) }
	}
	s, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func newTestScope(t testing.TB, s *Supervisor) *Scope {
	t.Helper()
	sc, err := s.Scope("test")
	must(t, err)
	return sc
}

func start(t testing.TB, sc *Scope, c Command) *Process {
	t.Helper()
	p, err := sc.Start(c)
	must(t, err)
	return p
}

// ways runs a test with cgroups, without them, and without cgroups and pidfds.
func ways(t *testing.T, test func(t *testing.T, opts Options)) {
	t.Run("cgroup", func(t *testing.T) {
		needCgroup(t)
		test(t, Options{Subreaper: true})
	})
	t.Run("sweep", func(t *testing.T) { test(t, Options{Subreaper: true, noCgroup: true}) })
	t.Run("old kernel", func(t *testing.T) {
		t.Cleanup(func() { procfs.PidfdOpen = unix.PidfdOpen })
		procfs.PidfdOpen = func(int, int) (int, error) { return -1, unix.ENOSYS }
		test(t, Options{Subreaper: true, noCgroup: true})
	})
}

// needCgroup skips the test where no cgroup can be made. In CI, a cgroup must be possible.
func needCgroup(t testing.TB) {
	t.Helper()
	home := cgroup.MakeHome()
	if home != nil {
		must(t, home.Remove())
		return
	}
	suite.Missing(t, "no cgroup v2 with cgroup.kill is writable here")
}

// killable is a supervisor in a process of its own.
type killable struct {
	cmd      *exec.Cmd
	guardian int
	end      procfs.Handle
	home     string
	proof    []byte
	words    *bufio.Reader
	// stderr ends when the supervisor and its guardian have ended.
	stderr *output
}

func startHelper(t *testing.T, p plan, out *output, more ...*os.File) *killable {
	t.Helper()
	text, err := json.Marshal(p)
	must(t, err)
	words, stderr := newOutput(t), newOutput(t)
	cmd := exec.Command("/proc/self/exe")
	if p.Cgroup != "" {
		self, err := os.Executable()
		must(t, err)
		cmd = exec.Command("sh", "-c", `echo $$ >"$1"/cgroup.procs && exec "$2"`, "sh", p.Cgroup, self)
	}
	cmd.Env = append(os.Environ(), "PROC_TEST_SUPERVISE="+string(text))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = words.w, stderr.w, append([]*os.File{out.w}, more...)
	must(t, cmd.Start())
	h := &killable{cmd: cmd, words: words.r, stderr: stderr}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if rest := stderr.end(); rest != "" {
			t.Logf("the helper wrote: %s", rest)
		}
		h.end.Await()
		h.end.Close()
	})
	guardian, rest, _ := strings.Cut(words.line(), " ")
	proof, home, _ := strings.Cut(rest, " ")
	h.guardian, err = strconv.Atoi(guardian)
	must(t, err)
	h.proof, err = hex.DecodeString(proof)
	must(t, err)
	h.end = procfs.Open(h.guardian)
	h.home = home
	return h
}

func (h *killable) kill(t *testing.T) {
	t.Helper()
	must(t, h.cmd.Process.Kill())
	h.cmd.Wait()
}

// helperWays does what ways does, for tests with a helper.
func helperWays(t *testing.T, test func(t *testing.T, p plan)) {
	t.Run("cgroup", func(t *testing.T) {
		needCgroup(t)
		test(t, plan{})
	})
	t.Run("sweep", func(t *testing.T) { test(t, plan{NoCgroup: true}) })
}

func descriptorsOpen(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	var targets []string
	for _, l := range links {
		target, err := os.Readlink(l)
		if errors.Is(err, os.ErrNotExist) {
			continue // the directory vanished after Glob had read it
		}
		must(t, err)
		targets = append(targets, target)
	}
	return targets
}
