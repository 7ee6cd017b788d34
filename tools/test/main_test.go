package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReport runs, in parts, a module in which tests pass, are skipped, fail, panic, are killed and
// do not compile.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range map[string]string{
		"go.mod":         "module m\n\ngo 1.26\n",
		"good/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"unseen\") }\n",
		"bad/a_test.go": `package a

import "testing"

func TestGood(t *testing.T) { t.Log("unseen") }

func TestBad(t *testing.T) {
	t.Run("fine", func(t *testing.T) { t.Log("beside") })
	t.Run("wrong", func(t *testing.T) {
		for i := range 40 {
			t.Log("line", i)
		}
		t.Fail()
	})
}
`,
		"skips/a_test.go": `package a

import "testing"

func TestGood(t *testing.T) {}

func TestNot(t *testing.T) { t.Run("here", func(t *testing.T) { t.Skip("no reason") }) }
`,
		"busy/a_test.go": `package a

import (
	"syscall"
	"testing"
)

func TestBusy(t *testing.T) {
	var used syscall.Rusage
	for used.Utime.Sec < 1 {
		for range 10_000_000 {
		}
		syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	}
}
`,
		"killed/a_test.go": `package a

import (
	"syscall"
	"testing"
)

func TestKilled(t *testing.T) { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }
`,
		"panics/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestPanic(t *testing.T) { panic(\"in panic\") }\n",
		"exits/a_test.go":  "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { println(\"no more\"); os.Exit(3) }\n",
		"broken/a_test.go": "package a\n\nfunc f() { undefined() }\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, int) {
		cmd := exec.Command(tool, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, _ := cmd.CombinedOutput() // its end is below
		return string(out), cmd.ProcessState.ExitCode()
	}
	good := regexp.MustCompile(`^ok  \tm/good\t\S+\n\nCPU seconds of the tests:\n +\d+\.\d\tbuilding them\n +\d+\.\d\tin all\n$`)
	if out, code := run("./good"); code != 0 || !good.MatchString(out) {
		t.Errorf("of a good package: %d and\n%s", code, out)
	}
	skips := regexp.MustCompile(`(?s)\n1 skipped:\nSKIP\tm/skips\tTestNot/here\ta_test.go:7: no reason\n.*\n +[1-9]\d*\.\d\tm/busy\n`)
	if out, code := run("./skips", "./busy"); code != 0 || !skips.MatchString(out) {
		t.Errorf("of packages that skip and take long: %d and\n%s", code, out)
	}
	out, code := run("./bad", "--", "./...", "--", "./good")
	_, end, _ := strings.Cut(out, "\n=== does not compile")
	for _, want := range []string{
		"m/bad TestBad/wrong\n", "line 39\n", "m/panics TestPanic\n", "FAIL\tm/killed\tTestKilled\n", "was ended by killed\n", "panic: in panic", "m/exits outside of its tests\nno more\n",
		"undefined: undefined\n", "\n5 failed:\n", "FAIL\tm/bad\tTestBad/wrong\n", "FAIL\tm/broken\t\n",
	} {
		if !strings.Contains("\n"+end, want) {
			t.Errorf("the end has no %q", want)
		}
	}
	if code != 1 || strings.Contains(out, "unseen") || !strings.Contains(out, "ok  \tm/good\t") || strings.Contains(end, fmt.Sprintln("line", 5)) {
		t.Errorf("exit code %d", code)
	}
	if t.Failed() {
		t.Log(out)
	}
}
