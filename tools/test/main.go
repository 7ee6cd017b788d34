// Test runs go test with its arguments, once for each part between "--", and shows the failures. It
// shows each failed test in full when the test ends, and at the very end the names of all failed
// tests with their last lines. Before these it lists the skipped tests, and the CPU time of the
// packages:
//
//	test ./internal/core/jobstate -- -race ./...
//
// Its exit code is the exit code of the first go test that failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// last is the number of lines of a failed test that are shown at the end: its last lines, or the
// first lines of a panic.
const last = 30

func main() {
	if len(os.Args) > 2 && os.Args[1] == measure {
		os.Exit(measured(os.Args[2:]))
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // go test, which also gets the signal, ends first
	r := newReport(os.Stdout)
	code := 0
	for rest, more := os.Args[1:], true; more; {
		part := rest
		if i := slices.Index(rest, "--"); i >= 0 {
			part, rest = rest[:i], rest[i+1:]
		} else {
			more = false
		}
		code = cmp.Or(code, run(r, part))
	}
	r.end()
	os.Exit(code)
}

// run returns the exit code of a go test.
func run(r *report, args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-exec", fmt.Sprintf("'%s' %s", self, measure)}, args...)...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go test:", err)
		return 2
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(told)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-told:
				_ = cmd.Process.Signal(s) // it may have ended
			case <-done:
				return
			}
		}
	}()
	r.read(out)
	err = cmd.Wait()
	r.all += taken(cmd)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go test:", err)
		return 2
	}
	return 0
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// test is one test, or with an empty name the output of a package outside of tests.
type test struct {
	pkg, name string
	output    []string
	ended     bool
	failed    bool
}

type report struct {
	to    io.Writer
	tests map[[2]string]*test
	// order is the order in which tests began.
	order []*test
	// builds are the compiler's errors.
	builds []string
	// skipped are the skipped tests.
	skipped []*test
	// cpu is the CPU time of the tests of each package, and all is the sum.
	cpu map[string]time.Duration
	all time.Duration
}

func newReport(to io.Writer) *report {
	return &report{to: to, tests: map[[2]string]*test{}, cpu: map[string]time.Duration{}}
}

// read takes events until their end. It shows a line that is not an event unchanged.
func (r *report) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil || e.Action == "":
			fmt.Fprint(r.to, line)
		default:
			r.take(e)
		}
		if err != nil {
			return
		}
	}
}

func (r *report) take(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.to, e.Output)
		r.builds = append(r.builds, e.Output)
	case "output":
		if took, ok := strings.CutPrefix(e.Output, measure); ok {
			d, _ := time.ParseDuration(strings.TrimSpace(took)) // measured has written it
			r.cpu[e.Package] += d
			return
		}
		t := r.test(e.Package, e.Test)
		if strings.HasPrefix(e.Output, "=== ") && e.Test != "" {
			return // the output of each test stays together
		}
		t.output = append(t.output, e.Output)
	case "run":
		r.test(e.Package, e.Test)
	case "pass", "skip", "fail":
		t := r.test(e.Package, e.Test)
		t.ended, t.failed = true, e.Action == "fail"
		if e.Action == "skip" && e.Test != "" {
			r.skipped = append(r.skipped, t)
		}
		switch top, _, _ := strings.Cut(e.Test, "/"); {
		case e.Test == "":
			r.ended(t)
		case top == e.Test:
			r.over(t)
		}
	}
}

func (r *report) test(pkg, name string) *test {
	key := [2]string{pkg, name}
	t, known := r.tests[key]
	if !known {
		t = &test{pkg: pkg, name: name}
		r.tests[key] = t
		r.order = append(r.order, t)
	}
	return t
}

// over shows a test that failed, with its subtests, and forgets any other test.
func (r *report) over(t *test) {
	for _, s := range r.within(t) {
		if t.failed {
			fmt.Fprint(r.to, strings.Join(s.output, ""))
		}
		if !s.failed && (s.ended || !t.failed) {
			delete(r.tests, [2]string{s.pkg, s.name})
		}
	}
	r.order = slices.DeleteFunc(r.order, func(s *test) bool { return r.tests[[2]string{s.pkg, s.name}] == nil })
}

// within returns a test and its subtests or, for a package, everything that is left of it.
func (r *report) within(t *test) (all []*test) {
	for _, s := range r.order {
		if s.pkg == t.pkg && (t.name == "" || s.name == t.name || strings.HasPrefix(s.name, t.name+"/")) {
			all = append(all, s)
		}
	}
	return all
}

// ended shows the last line of a package. If the package failed, its unfinished tests failed too,
// and are shown here.
func (r *report) ended(p *test) {
	for _, s := range r.within(p) {
		if p.failed && !s.ended {
			s.failed = true
			fmt.Fprint(r.to, strings.Join(s.output, ""))
		}
	}
	said := p.output
	if !p.failed && len(said) > 0 {
		said = said[len(said)-1:]
	}
	fmt.Fprint(r.to, strings.Join(said, ""))
	if !p.failed {
		r.order = slices.DeleteFunc(r.order, func(s *test) bool { return s.pkg == p.pkg })
	}
}

// end lists the skipped tests, the CPU time of the packages, and all failures.
func (r *report) end() {
	if len(r.skipped) > 0 {
		fmt.Fprintf(r.to, "\n%d skipped:\n", len(r.skipped))
	}
	for _, t := range r.skipped {
		fmt.Fprintf(r.to, "SKIP\t%s\t%s\t%s\n", t.pkg, t.name, t.reason())
	}
	r.costs()
	var failed []*test
	for _, t := range r.order {
		inner := slices.ContainsFunc(r.within(t), func(s *test) bool { return s != t && s.failed })
		if t.failed && !inner {
			failed = append(failed, t)
		}
	}
	if len(failed)+len(r.builds) == 0 {
		return
	}
	if len(r.builds) > 0 {
		fmt.Fprintf(r.to, "\n=== does not compile\n%s", strings.Join(r.builds[max(0, len(r.builds)-last):], ""))
	}
	for _, t := range failed {
		fmt.Fprintf(r.to, "\n=== %s %s\n", t.pkg, cmp.Or(t.name, "outside of its tests"))
		from := slices.IndexFunc(t.output, func(line string) bool {
			return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		})
		if from < 0 {
			from = max(0, len(t.output)-last)
		}
		fmt.Fprint(r.to, strings.Join(t.output[from:min(from+last, len(t.output))], ""))
	}
	fmt.Fprintf(r.to, "\n%d failed:\n", len(failed))
	for _, t := range failed {
		fmt.Fprintf(r.to, "FAIL\t%s\t%s\n", t.pkg, t.name)
	}
}

// reason is the last line that a skipped test printed.
func (t *test) reason() string {
	for _, line := range slices.Backward(t.output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--- ") {
			return line
		}
	}
	return "without a reason"
}
