package stacks

import (
	"bufio"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// versions are the interpreters that this package reads, by version, such as 3.09.18.
var versions = sync.OnceValue(func() map[string]string {
	home, _ := os.UserHomeDir()                                                       // a user without a home has no interpreters
	paths, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin/python3")) // the pattern is valid
	found := make(map[string]string)
	for _, python := range append(paths, "/usr/bin/python3") {
		out, err := exec.Command(python, "-c", "import sys; print('%d.%02d.%d' % sys.version_info[:3])").Output()
		if v := strings.TrimSpace(string(out)); err == nil && v >= "3.09" && v < "3.15" {
			found[v] = python
		}
	}
	return found
})

// pythons returns all interpreters, the oldest first.
func pythons(tb testing.TB) (paths []string) {
	tb.Helper()
	for _, v := range slices.Sorted(maps.Keys(versions())) {
		paths = append(paths, versions()[v])
	}
	if len(paths) == 0 {
		tb.Fatal("this test needs a Python from 3.9 to 3.14 (apt install python3)")
	}
	return paths
}

func version(python string) string {
	for v, path := range versions() {
		if path == python {
			return v
		}
	}
	return ""
}

// program is a Python that runs a program of testdata and has said that it is ready.
type program struct {
	*exec.Cmd
	in io.Closer
}

func start(tb testing.TB, python string, args ...string) program {
	tb.Helper()
	c := exec.Command(python, args...)
	c.Stderr = os.Stderr
	in, out := pipetest.Start(tb, c)
	tb.Cleanup(func() {
		in.Close()
		c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		tb.Fatalf("the program says %q: %v", line, err)
	}
	return program{c, in}
}
