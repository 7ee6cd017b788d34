package forkserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// library writes modules into a directory that comes before archives in the world's PYTHONPATH.
func (w *world) library(modules map[string]string, archives ...string) {
	w.Helper()
	lib := filepath.Join(w.dir, "lib")
	if err := os.MkdirAll(lib, 0o700); err != nil {
		w.Fatal(err)
	}
	for name, text := range modules {
		if err := os.WriteFile(filepath.Join(lib, name+".py"), []byte(text), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	w.env = append(w.env, "PYTHONPATH="+strings.Join(append([]string{lib}, archives...), ":"), "PYTHONDONTWRITEBYTECODE=1")
}

// TestModulesThatRanksCannotShare imports modules that make something for their own process, or
// keep it open. All ranks would share that.
func TestModulesThatRanksCannotShare(t *testing.T) {
	w := newWorld(t)
	temporary := t.TempDir()
	w.env = append(w.env, "TMPDIR="+temporary)
	refused := map[string]struct{ text, why string }{
		"reads":     {"f = open(__file__)", "it has " + filepath.Join(w.dir, "lib/reads.py") + " open"},
		"database":  {"import sqlite3\nc = sqlite3.connect(__file__ + '.db')", "it has " + filepath.Join(w.dir, "lib/database.py.db") + " open"},
		"folder":    {"import os\nf = os.open('/', os.O_RDONLY)", "it has / open"},
		"redirects": {"import os\nf = os.open(__file__, os.O_RDONLY)\nos.dup2(f, 1)\nos.close(f)", "it has " + filepath.Join(w.dir, "lib/redirects.py") + " open"},
		"temporary": {"import tempfile\nd = tempfile.TemporaryDirectory()", "temporary creates " + temporary + "/"},
		"kept":      {"import tempfile\nd = tempfile.mkdtemp(prefix='of-a-rank-')", "kept creates " + temporary + "/of-a-rank-"},
		"paths":     {"import pathlib\np = pathlib.Path(__file__ + '.run')\np.mkdir()", "paths creates " + filepath.Join(w.dir, "lib/paths.py.run")},
		"locks":     {"open(__file__ + '.lock', 'x').close()", "locks creates " + filepath.Join(w.dir, "lib/locks.py.lock")},
		"truncates": {"open(__file__ + '.log', 'w').close()", "truncates creates "},
		"links":     {"import os\nos.symlink('/', __file__ + '.link')", "links creates "},
		"pid":       {"from os import getpid\nPID = getpid()", "pid asks for its process id"},
		"named":     {"import multiprocessing\nPID = multiprocessing.current_process().pid", "named asks for its process id"},
		"ends":      {"import atexit, shutil\natexit.register(shutil.rmtree, '/nothing')", "ends registers a function with atexit"},
		"finalizes": {"import weakref, os\nclass C: pass\nc = C()\nf = weakref.finalize(c, os.unlink, '/nothing')", "is registered to run at exit (weakref.finalize)"},
		"goes":      {"import os\nos.chdir('/')", "the working directory is / and was " + w.dir},
	}
	texts := map[string]string{}
	for name, module := range refused {
		texts[name] = module.text + "\n"
	}
	w.library(texts)
	argv := []string{pythons(t)[0], "-c", "pass"}
	for name, module := range refused {
		unsafe := (*UnsafeError)(nil)
		if _, _, err := w.serve(argv, name); !errors.As(err, &unsafe) || !strings.HasPrefix(unsafe.Why, "after import "+name+" ") ||
			!strings.Contains(unsafe.Why, module.why) || unsafe.Module != name {
			t.Errorf("%s: got %v, want %q", name, err, module.why)
		}
	}
}

// TestModulesThatRanksShare checks that modules that leave nothing behind do not prevent a fork,
// and that the hooks that watched them have left no trace.
func TestModulesThatRanksShare(t *testing.T) {
	w := newWorld(t)
	log := filepath.Join(w.dir, "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.library(map[string]string{"fair": `import _pyio, atexit, gc, io, logging, multiprocessing.util, os, pathlib, tempfile
from atexit import register
from os import getpid, mkdir
logging.warning("which has the process id in its record")
with tempfile.TemporaryDirectory(), tempfile.NamedTemporaryFile():
    pass
with open(file="log", mode="a") as f:
    f.write("a line\n")
with open(file="once", mode="w"):
    os.rename(src="once", dst="twice")
os.link("twice", dst="thrice")
os.unlink("twice"), pathlib.Path("thrice").unlink(), os.close(os.open(path="log", flags=os.O_CREAT | os.O_RDWR))
_pyio.open(os.devnull, "wb").close()
null, path = os.open(os.devnull, os.O_RDWR), os.open("/", os.O_PATH)
class C:
    keeps = mkdir
    opens = open
import triton
gc.disable()
`, "triton": "import os\nos.makedirs('cache/of/the/user', exist_ok=True)\n"})
	argv := []string{pythons(t)[0], "-c", `import atexit, builtins, fair, gc, io, os, sys
plain = [os.getpid, os.open, os.mkdir, builtins.open, io.open, atexit.register, fair.getpid, fair.mkdir, fair.register, os.sched_getaffinity]
print([type(f).__name__ for f in plain], gc.isenabled(), fair.getpid() == os.getpid(), type(fair.C().opens(os.devnull)).__name__)
print(sorted(name for name in globals() if not name.startswith("__")))`}
	s, _ := w.server(argv, "fair")
	started, forked := w.run(argv, "", nil), w.run(argv, "", s)
	started.Errors = "" // the fork server has printed the warning of the import
	if diff := difference(started, forked); diff != "" || !strings.Contains(forked.Out, "False True TextIOWrapper") {
		t.Errorf("%s\n%+v", diff, forked)
	}
}

// notForked starts a rank that the server refuses to fork.
func (w *world) notForked(argv []string, s *Server, want string) {
	w.Helper()
	p, err := w.scope("program").Start(proc.Command{Path: argv[0], Args: argv, Env: w.env, Dir: w.dir, CPUs: []int{0}, Forker: s})
	if err != nil {
		w.Fatal(err)
	}
	if forked, why := p.Forked(); forked || why == nil || !strings.Contains(why.Error(), want) {
		w.Errorf("forked %v: %v, want %q", forked, why, want)
	}
	<-p.Done()
}

// TestModulesThatLookAtTheirCPUs checks that a rank with CPUs of its own is not forked if modules
// or libraries have read the server's CPUs.
func TestModulesThatLookAtTheirCPUs(t *testing.T) {
	w := newWorld(t)
	w.library(map[string]string{"counts": "import os\nCPUS = os.sched_getaffinity(0)\n", "plain": ""})
	argv := []string{pythons(t)[0], "-c", "import os; print(sorted(os.sched_getaffinity(0)))"}
	plain := w.env
	for module, env := range map[string]string{"counts": "A=1", "plain": "OMP_PROC_BIND=close"} {
		w.env = append(plain, env)
		s, _ := w.server(argv, module)
		w.notForked(argv, s, "the ranks are bound to others")
	}
	w.env = append(plain, "OMP_PROC_BIND=false")
	s, _ := w.server(argv, "plain")
	if e := w.run(argv, "", s); e.Out != "[0]\n" {
		t.Errorf("%+v", e)
	}
}

// TestModulesThatChangeWhileTheyAreImported checks that the server notices a file that changes
// after it was read, even before the imports have ended, and even if the file is an archive.
func TestModulesThatChangeWhileTheyAreImported(t *testing.T) {
	w := newWorld(t)
	archive := filepath.Join(w.dir, "more.zip")
	w.library(map[string]string{
		"edited": "with open(__file__, 'r+') as f:\n    f.write('# as who edits it\\n')\n", "plain": "",
		"archived": "import plain, zipfile\nwith zipfile.ZipFile('more.zip', 'a') as z:\n    z.writestr('more.py', '')\n",
	}, archive)
	python := pythons(t)[0]
	if out, err := exec.Command(python, "-c", "import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'w').writestr('zipped.py', 'import archived')", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for module, want := range map[string]string{"plain": "", "edited": filepath.Join(w.dir, "lib/edited.py"), "zipped": archive} {
		s, _ := w.server([]string{python, "-c", "pass"}, module)
		switch got := s.Changed(nil); {
		case want == "" && got != nil, want != "" && (got == nil || got.Error() != want+" has changed"):
			t.Errorf("%s: %v, want a change of %q", module, got, want)
		}
	}
}
