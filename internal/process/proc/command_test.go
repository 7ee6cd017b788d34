package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	file("plain", "#!/bin/sh\n", 0o644)
	file("noline", "echo hi\n", 0o755)
	file("nointerpreter", "#!/no/such/python -u\n", 0o755)
	file("windows", "#!/bin/sh\r\necho hi\r\n", 0o755)
	file("deadelf", "\x7fELF", 0o755)
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	closed, err := os.Open(dir)
	must(t, err)
	must(t, closed.Close())
	big := strings.Repeat("x", 4<<20)

	for name, test := range map[string]struct {
		c    Command
		code int
		word string
	}{
		"missing in PATH":       {Command{Path: "no-such-program"}, 127, "not found in the PATH"},
		"missing path":          {Command{Path: "/no/such/program"}, 127, "no such file"},
		"below a file":          {Command{Path: dir + "/plain/x"}, 127, "not a directory"},
		"empty":                 {Command{Path: ""}, 127, "not found"},
		"not executable in dir": {Command{Path: "./plain"}, 126, "chmod +x"},
		"not executable":        {Command{Path: "plain", Env: []string{"PATH=/no/such:" + dir}}, 126, "chmod +x"},
		"directory":             {Command{Path: "./sub"}, 126, "directory"},
		"no #! line":            {Command{Path: "./noline"}, 126, "#! line"},
		"bad binary":            {Command{Path: "./deadelf"}, 126, "architecture"},
		"missing interpreter":   {Command{Path: "./nointerpreter"}, 127, `interpreter does not: "/no/such/python -u"`},
		"script from Windows":   {Command{Path: "./windows"}, 127, `does not: "/bin/sh\r"; the script's lines end in \r\n`},
		"missing directory":     {Command{Path: "/bin/true", Dir: dir + "/gone"}, 127, "working directory"},
		"directory is a file":   {Command{Path: "/bin/true", Dir: dir + "/plain"}, 126, "working directory"},
		"too big":               {Command{Path: "/bin/true", Env: []string{"A=" + big}}, 126, "bytes"},
		"NUL in an argument":    {Command{Path: "/bin/true", Args: []string{"x", "a\x00b"}}, 125, "argument 1 has a NUL"},
		"NUL in environment":    {Command{Path: "/bin/true", Env: []string{"AB=\x00"}}, 125, `"AB" has a NUL`},
		"NUL in path":           {Command{Path: "/bin/\x00true"}, 125, "NUL"},
		"no arguments":          {Command{Path: "/bin/true", Args: []string{}}, 125, "no arguments"},
		"closed file":           {Command{Path: "/bin/true", Stdout: closed}, 125, "stdout is a closed file"},
	} {
		t.Run(name, func(t *testing.T) {
			sc := newTestScope(t, newSupervisor(t, Options{}))
			if test.c.Args == nil {
				test.c.Args = []string{"x"}
			}
			if test.c.Dir == "" {
				test.c.Dir = dir
			}
			_, err := sc.Start(test.c)
			var fail *StartError
			if !errors.As(err, &fail) {
				t.Fatalf("got %v, want a StartError", err)
			}
			if fail.Exit.Code != test.code || !strings.Contains(fail.Exit.Spawn, test.word) {
				t.Errorf("got %+v, want code %d and %q", fail.Exit, test.code, test.word)
			}
			if test.c.Path != "" && !strings.Contains(err.Error(), "start ") {
				t.Errorf("%q does not say what was attempted", err)
			}
		})
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "a/prog"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "b/prog"), []byte("#!/bin/sh\necho b\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "here"), []byte("#!/bin/sh\necho here\n"), 0o755))
	sc := newTestScope(t, newSupervisor(t, Options{}))
	for _, test := range []struct{ path, search, want string }{
		{"prog", dir + "/a:" + dir + "/b", "b"},
		{"prog", "a:b", "b"},
		{"here", "/no/such::b", "here"},
		{"./here", "", "here"},
		{"b/prog", "/bin", "b"},
	} {
		out := newOutput(t)
		env := []string{"PATH=" + test.search}
		start(t, sc, Command{Path: test.path, Args: []string{test.path}, Env: env, Dir: dir, Stdout: out.w})
		if got := strings.TrimSpace(out.end()); got != test.want {
			t.Errorf("%s in %s: ran %q, want %q", test.path, test.search, got, test.want)
		}
	}
}
