package dl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestMain lets this test binary also be the child process that loads a library. The child prints
// the library that it has loaded, or the error, and waits until its standard input ends.
func TestMain(m *testing.M) {
	if path, child := os.LookupEnv("GOLAUNCH_TEST_OPEN"); child {
		fmt.Println(describe(path))
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if order, child := os.LookupEnv("GOLAUNCH_TEST_REDUCE"); child {
		reduceInChild(order)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func describe(path string) string {
	l, err := Open(path)
	if err != nil {
		return "error: " + err.Error()
	}
	v, err := l.Version()
	if err != nil {
		return "error: " + err.Error()
	}
	if os.Getenv("GOLAUNCH_TEST_ID") != "" {
		if id, err := l.NewID(); err != nil || id == (UniqueID{}) {
			return fmt.Sprintf("error: a new ID is %v, %v", id, err)
		}
	}
	return v.String() + " " + l.Path()
}

// child loads the library in a new process, which lives as long as the test, and returns its output
// and its pid.
func child(t *testing.T, path string, env ...string) (said string, pid int) {
	t.Helper()
	// The test's own context would end too early, before the test lets the child end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), "GOLAUNCH_TEST_OPEN="+path), env...)
	cmd.Stderr = t.Output()
	hold, out := pipetest.Start(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	})
	if err != nil {
		t.Fatalf("the child printed %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n"), cmd.Process.Pid
}

// library compiles a shared library.
func library(t *testing.T, name, source string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	cc := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", file, "-")
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return file
}

func answering(code string) string {
	return "int ncclGetVersion(int *v) { *v = " + code + "; return 0; }"
}

func TestOpen(t *testing.T) {
	file := library(t, "libnccl.so.2.30.7", answering("23007"))
	link := filepath.Join(filepath.Dir(file), "link.so")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	l, err := Open(link)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := l.Version(); err != nil || v != (Version{2, 30, 7}) || l.Path() != file {
		t.Errorf("version %v of %s, %v", v, l.Path(), err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if found, err := Loaded(os.Getpid()); err != nil || !slices.Equal(found, []string{file}) {
		t.Errorf("loaded %q, %v", found, err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if found, err := Loaded(os.Getpid()); err != nil || len(found) > 0 {
		t.Errorf("still loaded %q, %v", found, err)
	}
	if v, err := l.Version(); err == nil {
		t.Errorf("a closed library is %v", v)
	}
}

func TestOpenFails(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libnccl.so.2")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a library ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"missing":      {filepath.Join(t.TempDir(), "none.so"), "none.so: cannot open shared object file"},
		"text":         {text, "invalid ELF header"},
		"other":        {library(t, "libnccl.so.2", "int other;"), "undefined symbol: ncclGetVersion"},
		"unresolvable": {library(t, "libnccl.so.2", "int f(void); int ncclGetVersion(int *v) { return f(); }"), "undefined symbol: f"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Open(c.path)
			if err == nil {
				t.Fatalf("opened %s", l.Path())
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
			if found, err := Loaded(os.Getpid()); err != nil || len(found) > 0 {
				t.Errorf("left %q loaded, %v", found, err)
			}
		})
	}
}

func TestVersionFails(t *testing.T) {
	for source, want := range map[string]string{
		answering("0"): "0 is no version code",
		"int ncclGetVersion(int *v) { *v = 23007; return 3; }": "ncclGetVersion returned 3",
	} {
		l, err := Open(library(t, "libnccl.so.2", source))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := l.Version(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %v, %v", v, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLoaderSearches needs a child because the loader reads LD_LIBRARY_PATH when a process starts.
func TestLoaderSearches(t *testing.T) {
	file := library(t, "libnccl.so.2", answering("2804"))
	said, pid := child(t, "", "LD_LIBRARY_PATH="+filepath.Dir(file))
	if said != "2.8.4 "+file {
		t.Errorf("the child loaded %q", said)
	}
	if found, err := Loaded(pid); err != nil || !slices.Equal(found, []string{file}) {
		t.Errorf("it has %q, %v", found, err)
	}
	said, _ = child(t, "", "LD_LIBRARY_PATH="+t.TempDir())
	if !strings.HasPrefix(said, "error: load NCCL: libnccl.so.2: cannot open") {
		t.Errorf("without a library: %q", said)
	}
}

// TestRealLibrary runs with the libnccl.so.2 that GOLAUNCH_TEST_LIBNCCL names, for example the
// library in PyPI's packages for torch. It needs no GPU.
func TestRealLibrary(t *testing.T) {
	path := suite.Optional(t, "GOLAUNCH_TEST_LIBNCCL", "libnccl.so.2")
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	said, pid := child(t, path, "GOLAUNCH_TEST_ID=1", "NCCL_SOCKET_IFNAME=lo") // some machines have no other interface
	if !strings.HasPrefix(said, "2.") || !strings.HasSuffix(said, " "+file) {
		t.Errorf("the child loaded %q", said)
	}
	t.Log(said)
	if found, err := Loaded(pid); err != nil || !slices.Equal(found, []string{file}) {
		t.Errorf("it has %q, %v", found, err)
	}
}
