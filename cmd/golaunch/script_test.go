package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestMain lets scripts call commands by name: golaunch and torchrun, built for these tests, and
// programs that are this test binary, started again.
func TestMain(m *testing.M) {
	programs := map[string]func(){
		"golaunch": func() { panic("golaunch is not built") }, // scripts may omit exec
		"torchrun": func() { panic("golaunch is not built") },
		"reserver": reserver,
		"spreader": spreader,
	}
	done := func() {}
	if programs[filepath.Base(os.Args[0])] == nil {
		done = suite.Apart()
	}
	flag.Set("test.parallel", fmt.Sprint(3*runtime.NumCPU())) // the tests wait more than they work
	testscript.Main(tests{m, done}, programs)
}

// tests run their jobs themselves, even if this user has a coordinator on this machine.
type tests struct {
	*testing.M
	done func()
}

func (t tests) Run() int {
	defer t.done()
	bin, err := os.Getenv(beside), error(nil)
	if bin == "" {
		bin, err = os.MkdirTemp("", "bin")
		if err == nil {
			err = suite.Golaunch(bin)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	os.Setenv("GORACE", "atexit_sleep_ms=0") // each process would wait for a second at its end, for races that it could still report
	os.Setenv("GOLAUNCH_COORDINATOR", "none")
	os.Setenv("GOLAUNCH_ALLOW_RUN_AS_ROOT", "true") // many of these tests need root
	return t.M.Run()
}

// TestScripts runs the command as users do. Scripts have these commands besides testscript's own:
//
//	code N CMD...   runs CMD and wants exit code N
//	holdport        listens on a port, named in $PORT, until the script ends
//	objects FILE... wants objects by the rules of docs/json.md in files, or in stdout or stderr, and nothing else
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build(t, filepath.Join(bin, "hello"), "../../examples/hello")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("EXAMPLES", examples)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("GOLAUNCH_COORDINATOR", "none")
			e.Setenv("GOLAUNCH_ALLOW_RUN_AS_ROOT", os.Getenv("GOLAUNCH_ALLOW_RUN_AS_ROOT"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":     code,
			"holdport": holdPort,
			"objects":  objects,
		},
	})
}

func build(t *testing.T, out, pkg string) {
	t.Helper()
	if text, err := exec.Command("go", "build", "-o", out, pkg).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, text)
	}
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v: %v", args[1:], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%v: exit code %d, want %d", args[1:], got, want)
	}
}

func holdPort(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv("PORT", fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
}
