package stacks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// root names a variable with the root of a Debian that has a newer Python than the machine.
const root = "GOLAUNCH_TEST_TORCH"

// lineOf is the line number of a comment in a program.
func lineOf(t *testing.T, text, comment string) int {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(line, "# the line of "+comment) {
			return i + 1
		}
	}
	t.Fatalf("there is no line of %s", comment)
	return 0
}

// until samples a process until a sample satisfies will, and then once more, because the frames of
// a sample are older than the kernel's facts. It polls because there is no event when a thread
// really waits.
func until(t *testing.T, p Process, will func(Sample) bool) Sample {
	t.Helper()
	for t.Context().Err() == nil {
		s := Take(t.Context(), []Process{p}, Options{})[0]
		if s.Missing != "" {
			t.Fatalf("something is missing: %+v", s)
		}
		if will(s) {
			return Take(t.Context(), []Process{p}, Options{})[0]
		}
	}
	t.Fatal("the process never came to rest")
	return Sample{}
}

// at returns a frame in the form that tests compare.
func at(f Frame) string { return fmt.Sprintf("%s %s:%d", f.Function, filepath.Base(f.File), f.Line) }

// rests reports whether the main thread reads, and all others wait for an event.
func rests(threads int) func(Sample) bool {
	return func(s Sample) bool {
		for _, th := range s.Threads {
			inner := ""
			if n := len(th.Frames); n > 0 {
				inner = th.Frames[n-1].Function
			}
			if th.State != "S" || th.Main && th.Call != "read" || !th.Main && !strings.HasSuffix(inner, "wait") {
				return false
			}
		}
		return len(s.Threads) == threads
	}
}

var works = []string{"deep", "drain", "Größe", "outer", "through_c", "long"}

// checkWorks checks that some thread does each work of the program.
func checkWorks(t *testing.T, s Sample, text, file string) {
	t.Helper()
	name := func(function string) string { return function }
	if s.Python != "3.9" && s.Python != "3.10" { // these versions have no qualified names
		name = func(function string) string { return strings.Replace(function, "等待", "Größe.等待", 1) }
	}
	wanted := map[string][]string{}
	for _, f := range []string{"recurse", "numbers", "等待", "inner", "compare"} {
		wanted[f] = []string{fmt.Sprintf("%s %s:%d", name(f), file, lineOf(t, text, f))}
	}
	wanted["compare"] = append([]string{fmt.Sprintf("through_c %s:%d", file, lineOf(t, text, "through_c"))}, wanted["compare"]...)
	wanted["long"] = []string{strings.Repeat("n", maxName-3) + "… <string>:3"}
	if !s.Threads[0].Main || at(s.Threads[0].Frames[1]) != fmt.Sprintf("main %s:%d", file, lineOf(t, text, "main")) {
		t.Errorf("the main thread is %+v", s.Threads[0])
	}
	for what, calls := range wanted {
		if !slices.ContainsFunc(s.Threads, func(th Thread) bool { return containsCalls(th.Frames, calls) }) {
			t.Errorf("no thread is in %v, of %s: %+v", calls, what, s)
		}
	}
	for _, th := range s.Threads {
		if th.TID == 0 || th.Moves || th.Call == "" {
			t.Errorf("thread %+v should be known, and at rest", th)
		}
	}
}

// containsCalls reports whether frames contain calls in a row.
func containsCalls(frames []Frame, calls []string) bool {
	for i := range frames {
		if i+len(calls) > len(frames) {
			return false
		}
		same := true
		for j, c := range calls {
			same = same && at(frames[i+j]) == c
		}
		if same {
			return true
		}
	}
	return false
}

func TestVersions(t *testing.T) {
	text, err := os.ReadFile("testdata/program.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			p := start(t, python, append([]string{"testdata/program.py"}, works...)...)
			s := until(t, Process{PID: p.Process.Pid, Rank: 3}, rests(1+len(works)))
			major, minor, _ := strings.Cut(version(python), ".")
			if minor, _, _ = strings.Cut(minor, "."); s.Python != major+"."+strings.TrimPrefix(minor, "0") || s.Rank != 3 || s.Cut {
				t.Errorf("the sample is of %+v", s)
			}
			checkWorks(t, s, string(text), "program.py")
		})
	}
}

// TestRoot: a Python is in another root directory, so its paths do not exist here.
func TestRoot(t *testing.T) {
	dir := os.Getenv(root)
	if dir == "" || os.Geteuid() != 0 {
		suite.Missing(t, "set %s to the root of a newer Debian, and be root", root)
	}
	text, err := os.ReadFile("testdata/program.py")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "chroot", append([]string{dir, "/usr/bin/python3", "-c", string(text)}, works...)...)
	s := until(t, Process{PID: p.Process.Pid}, rests(1+len(works)))
	t.Logf("Python %s", s.Python)
	checkWorks(t, s, strings.TrimSpace(string(text)), "<string>")
}

// TestNamespace has a Python in a PID namespace with other thread numbers.
func TestNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can make a PID namespace")
	}
	text, err := os.ReadFile("testdata/program.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			p := start(t, "unshare", append([]string{"--fork", "--pid", "--kill-child", python, "testdata/program.py"}, works...)...)
			inside := children(p.Process.Pid)
			if len(inside) != 1 {
				t.Fatalf("unshare has the children %v", inside)
			}
			checkWorks(t, until(t, Process{PID: inside[0]}, rests(1+len(works))), string(text), "program.py")
		})
	}
}

func TestDeep(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			p := start(t, python, "testdata/program.py", "recurse")
			s := until(t, Process{PID: p.Process.Pid}, rests(2))
			calls := 0
			for _, f := range s.Threads[1].Frames {
				calls += f.count()
			}
			// _bootstrap, _bootstrap_inner, run, lambda, 301 of recurse, and two of wait
			if frames := s.Threads[1].Frames; !s.Cut || len(frames) != maxFrames+1 || calls != 4+301+2 || frames[0].count() != 1 {
				t.Errorf("%d frames stand for %d calls (cut: %v)", len(frames), calls, s.Cut)
			}
		})
	}
}

// TestSpin has a thread that calls functions all the time. The outer frames are right in every
// sample, and no frame is impossible.
func TestSpin(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			p := start(t, python, "testdata/program.py", "spin")
			var gil, inner bool
			for range 200 {
				s := Take(t.Context(), []Process{{PID: p.Process.Pid}}, Options{})[0]
				if s.Missing != "" || len(s.Threads) != 2 {
					t.Fatalf("the sample is %+v", s)
				}
				frames := s.Threads[1].Frames
				var names []string
				for _, f := range frames[min(3, len(frames)):] {
					names = append(names, f.Function)
				}
				names = slices.DeleteFunc(names, func(n string) bool { return n == "leaf.<locals>.<listcomp>" || n == "<listcomp>" })
				if legal := []string{"spin", "leaf"}; !slices.Equal(names, legal[:min(len(names), 2)]) && !isSet(names) {
					t.Fatalf("the frames are %v, and cannot be", frames)
				}
				gil, inner = gil || s.Threads[1].GIL, inner || slices.Contains(names, "leaf")
			}
			if !gil || !inner {
				t.Errorf("in 200 samples the thread held the lock: %v, and was in leaf: %v", gil, inner)
			}
		})
	}
}

// isSet reports whether a spinning thread asks whether its event is set.
func isSet(names []string) bool {
	return len(names) == 2 && names[0] == "spin" && strings.HasSuffix(names[1], "is_set")
}

func TestChildren(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			p := start(t, python, "testdata/family.py")
			samples := Take(t.Context(), []Process{{PID: p.Process.Pid, Rank: 5}}, Options{Children: true})
			var roles []string
			for _, s := range samples {
				if s.Missing != "" || s.Rank != 5 || len(s.Threads) == 0 || s.Threads[0].TID != s.PID {
					t.Errorf("the sample is %+v", s)
				}
				roles = append(roles, s.Role)
			}
			slices.Sort(roles)
			if want := []string{"", "DataLoader worker", "child", "sleep"}; !slices.Equal(roles, want) {
				t.Errorf("the roles are %q, not %q", roles, want)
			}
			var named []Process
			for _, s := range samples {
				named = append(named, Process{PID: s.PID, Rank: 5})
			}
			for i, s := range Take(t.Context(), named, Options{}) {
				if s.Role != samples[i].Role {
					t.Errorf("process %d is %q where it is named, and %q where it is found", s.PID, s.Role, samples[i].Role)
				}
			}
		})
	}
}

// TestWrapper has a shell as the rank, which runs the Python.
func TestWrapper(t *testing.T) {
	p := start(t, "sh", "-c", pythons(t)[0]+" testdata/program.py; exit $?")
	samples := Take(t.Context(), []Process{{PID: p.Process.Pid}}, Options{Children: true})
	if len(samples) != 2 || samples[0].Role != "sh" || samples[1].Role != "" || samples[1].Python == "" {
		t.Errorf("the samples are %+v", samples)
	}
	if th := samples[0].Threads; len(th) != 1 || th[0].State != "S" || th[0].Call != "wait" || th[0].Frames != nil {
		t.Errorf("the shell is %+v", th)
	}
}

func TestGone(t *testing.T) {
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	s := Take(t.Context(), []Process{{PID: c.Process.Pid, Rank: 1}}, Options{Children: true})[0]
	if s.Missing != errGone.Error() || s.Rank != 1 || s.Threads != nil {
		t.Errorf("the sample is %+v", s)
	}
	c = exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.Process.Kill()
	until := Sample{}
	// The process becomes a zombie, because it is not reaped. Its program may have ended before
	// that moment.
	for end := time.Now().Add(10 * time.Second); until.Missing != errGone.Error() && time.Now().Before(end); {
		until = Take(t.Context(), []Process{{PID: c.Process.Pid}}, Options{})[0]
	}
	if c.Wait(); until.Missing != errGone.Error() {
		t.Errorf("the zombie is %+v", until)
	}
}

// TestLife samples a process from its first moment until after its last: every sample must be
// correct.
func TestLife(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(version(python), func(t *testing.T) {
			c := exec.Command(python, "testdata/program.py", "deep")
			if err := c.Start(); err != nil { // its standard input is empty
				t.Fatal(err)
			}
			told := map[string]int{}
			for ended := false; !ended; {
				s := Take(t.Context(), []Process{{PID: c.Process.Pid}}, Options{})[0]
				told[s.Missing]++
				ended = s.Missing == errGone.Error()
				for _, th := range s.Threads {
					for _, f := range th.Frames {
						if f.Function == "" || f.File == "" || f.Line < 0 || f.Line > 10000 {
							t.Errorf("%+v is no frame of this program", f)
						}
					}
				}
			}
			c.Wait()
			delete(told, "")
			delete(told, errGone.Error())
			delete(told, errNone.Error())
			delete(told, errReplaced.Error())
			for what, n := range told {
				early := strings.Contains(what, "its symbols") || strings.Contains(what, "dynamic symbols")
				if !early && !strings.Contains(what, errTorn.Error()) && !strings.Contains(what, "bad address") {
					t.Errorf("%d times: %s", n, what)
				}
			}
		})
	}
}

func TestLimit(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := Take(ctx, []Process{{PID: os.Getpid()}}, Options{})[0]
	if s.Missing != "no time was left to look into it" {
		t.Errorf("the sample is %+v", s)
	}
	many := make([]Process, maxProcesses+1)
	if got := Take(ctx, many, Options{}); len(got) != len(many) || got[maxProcesses].Missing != "no more than 8192 processes are looked into" {
		t.Errorf("the last sample is %+v", got[maxProcesses])
	}
}

// TestStranger has a process of another user than the rank's.
func TestStranger(t *testing.T) {
	p := start(t, pythons(t)[0], "testdata/program.py")
	other := &safefile.Rights{UID: uint32(os.Geteuid()) + 1, GID: 1}
	s := Take(t.Context(), []Process{{PID: p.Process.Pid, Rights: other}}, Options{})[0]
	if s.Missing != errNotPermitted.Error() || s.Threads != nil {
		t.Errorf("the sample is %+v", s)
	}
	me := &safefile.Rights{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if s := Take(t.Context(), []Process{{PID: p.Process.Pid, Rights: me}}, Options{})[0]; s.Missing != "" || len(s.Threads) == 0 {
		t.Errorf("the sample is %+v", s)
	}
}

// protected has shell commands that a user runs with the path of a Python and a program. The user
// may trace the process of the first command; the kernel refuses the others, each for a different
// reason.
var protected = map[string]string{
	"may be looked into": `exec setpriv --reuid=54321 --regid=54321 --clear-groups "$0" -c "$1"`,
	"protects itself":    `exec setpriv --reuid=54321 --regid=54321 --clear-groups "$0" -c "import ctypes; ctypes.CDLL(None).prctl(4, 0); $1"`,
	"has another group":  `exec setpriv --reuid=54321 --regid=54322 --clear-groups "$0" -c "$1"`,
	"has another real group": `exec setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps=+setgid --ambient-caps=+setgid "$0" \
		-c "import os; os.setresgid(54322, 54321, 54321); $1"`,
	"is setgid": `cp "$0" python3; chgrp 54322 python3; chmod 2755 python3
		exec setpriv --reuid=54321 --regid=54321 --clear-groups ./python3 -c "$1"`,
	"may not be read": `cp "$0" python3; chmod 0711 python3
		exec setpriv --reuid=54321 --regid=54321 --clear-groups sh -c 'exec ./python3 -c "$0"' "$1"`,
}

// TestProtected has processes of the rank's user that the kernel protects from this user.
func TestProtected(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can run processes of other users")
	}
	user := &safefile.Rights{UID: 54321, GID: 54321}
	for what, script := range protected {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			p := start(t, "sh", "-c", "cd "+dir+"\n"+script, "/usr/bin/python3", "import sys; print('ready', flush=True); sys.stdin.read()")
			s := Take(t.Context(), []Process{{PID: p.Process.Pid, Rights: user}}, Options{})[0]
			if what == "may be looked into" {
				if s.Missing != "" || s.Python == "" || len(s.Threads) != 1 || len(s.Threads[0].Frames) != 1 {
					t.Errorf("the sample is %+v", s)
				}
				return
			}
			if s.Missing != errNotPermitted.Error() || s.Threads != nil || s.Name != "" {
				t.Errorf("the sample is %+v", s)
			}
		})
	}
}

// TestReplaced has a process that starts another program after its memory was opened.
func TestReplaced(t *testing.T) {
	c := exec.Command("sh", "-c", "read line; exec cat")
	in, out := pipetest.Start(t, c)
	defer c.Wait()
	defer in.Close()
	memory, err := open(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.close()
	maps, err := readLarge(fmt.Sprintf("/proc/%d/maps", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	from, _, _ := strings.Cut(string(maps), "-")
	base, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, pageSize)
	if err := memory.page(base, page); err != nil || !strings.HasPrefix(string(page), "\x7fELF") {
		t.Errorf("the shell begins with %q: %v", page[:4], err)
	}
	if err := memory.page(pageSize, page); !errors.Is(err, unix.EFAULT) {
		t.Errorf("where nothing is there is %v", err)
	}
	if _, err := io.WriteString(in, "a line for the shell\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "and one for cat\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "and one for cat\n" {
		t.Fatal(line, err)
	}
	if err := memory.page(base, page); !errors.Is(err, errReplaced) {
		t.Errorf("after another program began there is %v", err)
	}
}

// TestStatic has a program without dynamic symbols, which can be a Python only if it is named so.
func TestStatic(t *testing.T) {
	dir := t.TempDir()
	source := "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"ready\\n\"); os.Stdin.Read(make([]byte, 1)) }\n"
	if err := os.WriteFile(dir+"/main.go", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", dir+"/rank", dir+"/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Link(dir+"/rank", dir+"/python3"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nowhere") // no py-spy is there
	for name, want := range map[string]string{
		"rank": "", "python3": missing(errNoSymbols, nil),
	} {
		p := start(t, dir+"/"+name)
		s := Take(t.Context(), []Process{{PID: p.Process.Pid}}, Options{})[0]
		if s.Missing != want || s.Python != "" || len(s.Threads) != 1 || s.Threads[0].Frames != nil {
			t.Errorf("of a static %s it says %+v", name, s)
		}
	}
}

func TestMissing(t *testing.T) {
	for err, want := range map[error]string{
		unix.ESRCH:                                "the process has ended",
		&os.PathError{Err: unix.EACCES}:           "run the agent as root, or as the rank's user",
		fmt.Errorf("%w; %w", unix.EPERM, errNone): "run the agent as root, or as the rank's user",
		errReplaced:                               "the process's program has ended",
		fmt.Errorf("at 7: %w", context.Canceled):  "its memory could not be read in time",
		errNone:                                   "its Python has not started or has ended",
		errFreeThreaded:                           "it is a build without the GIL; install py-spy on this node",
		unknown(15):                               "the memory of Python 3.15 is not known; install py-spy on this node",
	} {
		if got := missing(err, nil); !strings.Contains(got, want) {
			t.Errorf("%v is %q", err, got)
		}
	}
}
