package forkserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnOldPython checks that an old Python reports its version, though it cannot parse the
// server's text. It makes a new Python believe that it is old, and also tries old Pythons where
// they are available.
func TestAnOldPython(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	forged := "import sys\nsys.version_info = (3, 8, 0, 'final', 0)\n"
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	newest := pythons(t)[0]
	versions := map[string]string{newest: "3.8"}
	for _, old := range []string{"2.7", "3.6", "3.7", "3.8"} {
		found, err := filepath.Glob(filepath.Join(home, ".pyenv/versions", old+".*/bin/python"))
		if err != nil {
			t.Fatal(err)
		}
		for _, python := range found {
			versions[python] = old
		}
	}
	for python, version := range versions {
		p, err := Parse([]string{python, "-c", "pass"})
		if err != nil {
			t.Fatal(err)
		}
		conn, stdin, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		argv := Argv(p, "a test")
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Stdin, cmd.Env = stdin, os.Environ()
		if python == newest {
			cmd.Env = append(cmd.Env, "PYTHONPATH="+dir)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stdin.Close()
		_, err = Greet(t.Context(), conn, p, Modules{Names: []string{"json"}}, cmd.Env)
		if want := "Python " + version + " is not CPython 3.9 to 3.14"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", python, err, want)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: it exits 0", python)
		}
	}
}
