package forkserver

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
)

// patience bounds every wait of a test; working code stays far below it.
const patience = 2 * time.Minute

// TestMain keeps orphans of the tests from the init of the machine, because some machines have no
// init that reaps.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// pythons returns the available interpreters. The one in PATH comes first, then one of each other
// version, the oldest first.
func pythons(t testing.TB) []string {
	t.Helper()
	found, err := installed()
	if err != nil {
		t.Fatalf("this test needs Python (apt install python3): %v", err)
	}
	return found
}

var installed = sync.OnceValues(func() ([]string, error) {
	first, err := exec.LookPath("python3")
	if err != nil {
		return nil, err
	}
	version := func(python string) string {
		out, err := exec.Command(python, "-c", "import sys; print('%d.%02d' % sys.version_info[:2], sys.implementation.name + sys.abiflags)").Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	others, err := filepath.Glob(filepath.Join(suite.Home(), ".pyenv/versions/3.*/bin/python3"))
	if err != nil {
		return nil, err
	}
	for minor := range 15 {
		if python, err := exec.LookPath(fmt.Sprintf("python3.%d", minor)); err == nil {
			others = append(others, python)
		}
	}
	of := map[string]string{}
	for _, python := range append(others, "/usr/bin/python3") {
		if v := version(python); v >= "3.09" && strings.HasSuffix(v, " cpython") && of[v] == "" {
			of[v] = python
		}
	}
	delete(of, version(first))
	found := []string{first}
	for _, v := range slices.Sorted(maps.Keys(of)) {
		found = append(found, of[v])
	}
	return found, nil
})

// world has a supervisor and, for each interpreter and its flags, a server.
type world struct {
	*testing.T
	supervisor *proc.Supervisor
	env        []string
	dir        string
	// servers are the scopes of the servers.
	servers []*proc.Scope
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := proc.New(proc.Options{Warn: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "PYTHONHASHSEED=7"}
	return &world{T: t, supervisor: s, env: env, dir: t.TempDir()}
}

func (w *world) scope(name string) *proc.Scope {
	w.Helper()
	sc, err := w.supervisor.Scope(name)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := sc.Close(); err != nil {
			w.Error(err)
		}
	})
	return sc
}

// server is serve for a server that must start.
func (w *world) server(argv []string, modules ...string) (*Server, *proc.Process) {
	w.Helper()
	s, p, err := w.serve(argv, modules...)
	if err != nil {
		w.Fatal(err)
	}
	return s, p
}

// rank starts a rank that only a forker may make.
func (w *world) rank(sc *proc.Scope, argv []string, f proc.Forker, env ...string) *proc.Process {
	w.Helper()
	p, err := sc.Start(proc.Command{Path: argv[0], Args: argv, Env: append(slices.Clone(w.env), env...), Dir: w.dir, Forker: f, ForkOnly: true})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// serve starts a server for a command line. The test's log has what its imports print.
func (w *world) serve(argv []string, modules ...string) (*Server, *proc.Process, error) {
	w.Helper()
	p, err := Parse(argv)
	if err != nil {
		w.Fatal(err)
	}
	conn, stdin, err := Pair()
	if err != nil {
		w.Fatal(err)
	}
	var read sync.WaitGroup
	out := pipe(w.T, &read, func(b []byte) {
		if len(b) > 0 {
			w.Logf("the server: %s", b)
		}
	})
	defer out.Close()
	args := Argv(p, strings.Join(modules, ","))
	sc := w.scope("server")
	w.servers = append(w.servers, sc)
	process, err := sc.Start(proc.Command{Path: args[0], Args: args, Env: w.env, Dir: w.dir, Stdin: stdin, Stdout: out, Stderr: out, Serves: true})
	_ = stdin.Close()
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := Greet(ctx, conn, p, Modules{Names: modules}, w.env)
	if err != nil {
		return nil, process, err
	}
	w.Cleanup(func() { _ = s.Close() })
	return s, process, nil
}

func pipe(t testing.TB, read *sync.WaitGroup, done func([]byte)) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Go(func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		done(b)
		_ = r.Close()
	})
	return w
}

// end is everything that a process leaves.
type end struct {
	Exit        report.Exit
	Out, Errors string
}

// run starts a program, from a server unless s is nil.
func (w *world) run(argv []string, stdin string, s *Server, more ...string) end {
	w.Helper()
	var e end
	var read sync.WaitGroup
	out := pipe(w.T, &read, func(b []byte) { e.Out = string(b) })
	errs := pipe(w.T, &read, func(b []byte) { e.Errors = string(b) })
	c := proc.Command{Path: argv[0], Args: argv, Env: append(slices.Clone(w.env), more...), Dir: w.dir, Stdout: out, Stderr: errs, CPUs: []int{0}}
	if s != nil {
		c.Forker = s
	}
	if stdin != "" {
		in, err := os.Open(stdin)
		if err != nil {
			w.Fatal(err)
		}
		defer in.Close()
		c.Stdin = in
	}
	sc := w.scope("program")
	if s != nil { // a process that was forked ahead must not differ either
		if err := sc.Ahead(s, nil); err != nil {
			w.Error(err)
		}
	}
	p, err := sc.Start(c)
	_, _ = out.Close(), errs.Close()
	if err != nil {
		w.Fatal(err)
	}
	if ok, why := p.Forked(); ok != (s != nil) {
		w.Errorf("%q was not forked: %v", argv, why)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		w.Errorf("%q does not end", argv)
		if err := sc.Kill(); err != nil {
			w.Error(err)
		}
	}
	read.Wait()
	e.Exit = p.Exit()
	return e
}

// programs are written into the directory of the world. Each has the command line that follows the
// interpreter.
func (w *world) programs() map[string][]string {
	w.Helper()
	self, err := os.ReadFile("testdata/self.py")
	if err != nil {
		w.Fatal(err)
	}
	write := func(name, text string) {
		path := filepath.Join(w.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.Fatal(err)
		}
	}
	for _, name := range []string{"self.py", "sub/self.py", "package/__init__.py", "package/__main__.py", "folder/__main__.py"} {
		write(name, string(self))
	}
	write("package/__init__.py", "")
	if err := os.Symlink("../self.py", filepath.Join(w.dir, "sub/link.py")); err != nil {
		w.Fatal(err)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	f, err := z.Create("__main__.py")
	if err == nil {
		_, err = f.Write(self)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		w.Fatal(err)
	}
	write("archive.zip", archive.String())
	lines := map[string]string{
		"code":      "import sys\nsys.exit(3)\n",
		"words":     "import sys\nsys.exit('it is over')\n",
		"raise":     "def f(n):\n    if n == 0:\n        raise ValueError('é')\n    f(n - 1)\ntry:\n    f(2)\nexcept ValueError as e:\n    raise KeyError('of') from e\n",
		"syntax":    "x = )\n",
		"interrupt": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(9)\n",
		"segv":      "import faulthandler, os, signal, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.kill(os.getpid(), signal.SIGSEGV)\n",
		"exit":      "import os\nprint('lost')\nos._exit(7)\n",
		"hook":      "import sys, traceback\ndef hook(kind, value, tb):\n    print(kind, value, len(traceback.extract_tb(tb)), value.__traceback__ is tb)\nsys.excepthook = hook\n1/0\n",
		"last":      "import atexit, sys, traceback\natexit.register(lambda: print(len(traceback.extract_tb(sys.last_traceback)), sys.excepthook is sys.__excepthook__))\n1/0\n",
		"threads":   "import atexit, threading, time\natexit.register(print, 'atexit')\ndef f():\n    time.sleep(.05)\n    print('thread')\n    1/0\nthreading.Thread(target=f, name='T').start()\nprint('main')\n",
		"input":     "import sys\nprint(repr(input()), repr(sys.stdin.read()), sys.stdin.tell())\n",
		"sibling":   "import sibling\nprint(sibling.__file__)\n",
		"children":  "import subprocess, sys, os\nprint(subprocess.run([sys.executable, '-c', 'import os; print(os.environ.get(\"RANK\"), os.getcwd())'], capture_output=True, text=True).stdout)\npid = os.fork()\nif pid == 0:\n    print('child', flush=True)\n    os._exit(5)\nprint(os.waitpid(pid, 0)[1])\n",
		"late":      "import inspect, logging\nclass C:\n    pass\nprint(inspect.getsource(C), logging.getLogger().handlers, __name__, inspect.currentframe().f_code.co_filename)\nlogging.warning('w')\n",
		"context":   "import contextvars, decimal, signal\nprint(len(contextvars.copy_context()), decimal.getcontext(), signal.pthread_sigmask(signal.SIG_BLOCK, []))\n",
		"workers":   "import multiprocessing as m, os\nclass C:\n    def __init__(self, n): self.n = n\ndef f(x):\n    return C(x.n * 2)\nif __name__ == '__main__':\n    for how in 'fork', 'spawn', 'forkserver':\n        with m.get_context(how).Pool(2) as p:\n            print(how, [c.n for c in p.map(f, [C(n) for n in range(4)])], flush=True)\n",
	}
	write("sibling.py", "")
	argvs := map[string][]string{
		"script": {"self.py", "-a", "b c", ""}, "dot": {"./self.py"}, "sub": {"sub/self.py"}, "link": {"sub/link.py"}, "absolute": {filepath.Join(w.dir, "self.py")},
		"module": {"-m", "package", "x"}, "moduleof": {"-mpackage.__main__"}, "command": {"-c", string(self), "y"}, "folder": {"folder", "z"}, "archive": {"archive.zip"},
		"missing module": {"-m", "nothing.of.it"}, "error in command": {"-c", "def f():\n  1/0\nf()"}, "syntax in command": {"-c", "x = ("},
	}
	for name, text := range lines {
		write(name+".py", text)
		argvs[name+".py"] = []string{name + ".py"}
	}
	return argvs
}

// below are the server's frames, which faulthandler shows, and the frames of C, which it shows
// since CPython 3.14.
var below = regexp.MustCompile(`  File "<golaunch>".*\n  File "<string>", line 1 in <module>\n|  Binary file ".*\n`)

// chance matches what differs between two runs of one program.
var chance = regexp.MustCompile(`PYENV_\w+|0x[0-9a-f]+|Thread-\d+|golaunch-\d+-\w+/\d+-`)

// TestTheSame starts programs and forks them. It uses the Python in PATH, and the oldest and the
// newest other one, each with other flags. With [suite.All] it uses every available Python.
func TestTheSame(t *testing.T) {
	w := newWorld(t)
	programs := w.programs()
	input := filepath.Join(w.dir, "words")
	if err := os.WriteFile(input, []byte("a\r\nb\nc"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := pythons(t)
	if !suite.All() && len(all) > 3 {
		all = []string{all[0], all[1], all[len(all)-1]}
	}
	for i, python := range all {
		sets := [][]string{nil, {"-O", "-u"}, {"-I", "-X", "dev"}, {"-sE", "-W", "error", "-Xutf8=0"}}
		if suite.All() && i > 0 {
			sets = sets[:1+i%2]
		}
		for n, flags := range sets {
			if !suite.All() && n%max(2, len(all)) != i {
				continue
			}
			env := w.env
			if i%2 == 1 {
				env = slices.Concat(env[:2], env[3:]) // in the C locale
			}
			t.Run(filepath.Base(filepath.Dir(filepath.Dir(python)))+strings.Join(flags, ""), func(t *testing.T) {
				t.Parallel()
				w := &world{T: t, supervisor: w.supervisor, env: env, dir: w.dir}
				s, _ := w.server(append(append([]string{python}, flags...), "x.py"))
				for name, program := range programs {
					argv := slices.Concat([]string{python}, flags, program)
					in := ""
					if name == "input.py" {
						in = input
					}
					started, forked := w.run(argv, in, nil, "RANK=3", "Ä=\xff"), w.run(argv, in, s, "RANK=3", "Ä=\xff")
					if diff := difference(started, forked); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
				}
			})
		}
	}
}

// difference returns what differs between two ends, except by chance.
func difference(started, forked end) string {
	var diffs []string
	if started.Exit != forked.Exit {
		diffs = append(diffs, fmt.Sprintf("exit %+v, forked %+v", started.Exit, forked.Exit))
	}
	var a, b map[string]any
	if json.Unmarshal([]byte(started.Out), &a) == nil && json.Unmarshal([]byte(forked.Out), &b) == nil {
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range a {
				if !yield(k) {
					return
				}
			}
		}) {
			x, y := plain(a[key]), plain(b[key])
			if x != y {
				at := 0
				for at < min(len(x), len(y)) && x[at] == y[at] {
					at++
				}
				diffs = append(diffs, fmt.Sprintf("%s is\n\t...%.120s, forked\n\t...%.120s", key, x[max(0, at-60):], y[max(0, at-60):]))
			}
		}
	} else if x, y := plain(started.Out), plain(forked.Out); x != y {
		diffs = append(diffs, fmt.Sprintf("stdout is %q, forked %q", x, y))
	}
	if x, y := plain(started.Errors), plain(forked.Errors); x != y {
		diffs = append(diffs, fmt.Sprintf("stderr is\n%s\nforked\n%s", x, y))
	}
	return strings.Join(diffs, "\n")
}

func plain(v any) string {
	return chance.ReplaceAllString(below.ReplaceAllString(fmt.Sprint(v), ""), "CHANCE")
}
