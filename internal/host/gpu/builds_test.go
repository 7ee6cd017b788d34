package gpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// build compiles a program of testdata with or without cgo.
func build(t *testing.T, cgo, name string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", program, "./testdata/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with CGO_ENABLED=%s: %v\n%s", cgo, err, out)
	}
	return program
}

func TestBothBuildsList(t *testing.T) {
	install(t, "")
	for cgo, env := range map[string]string{"0": "LD_BIND_NOW=1", "1": "LD_BIND_NOW="} {
		var complaints bytes.Buffer
		cmd := exec.Command(build(t, cgo, "list"), generous.String())
		cmd.Env = append(os.Environ(), env)
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("CGO_ENABLED=%s: %v: %s", cgo, err, complaints.Bytes())
		}
		var got []Device
		if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, fake) {
			t.Errorf("CGO_ENABLED=%s: got %s (%v), want %v; %s", cgo, out, err, fake, complaints.Bytes())
		}
	}
}

// This test checks that a probe ends by itself if its parent was killed.
func TestProbeOutlivesNoDeadParent(t *testing.T) {
	w := wedged(t, "hang")
	parent := exec.Command(build(t, "0", "list"), "5s")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	w.held()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the parent ended before it was killed")
	}
	w.released()
}

// Both builds read the same values, from a driver that reports everything and from a driver that
// reports little.
func TestBothBuildsRead(t *testing.T) {
	for cgo, env := range map[string]string{"0": "LD_BIND_NOW=1", "1": "LD_BIND_NOW="} {
		program := build(t, cgo, "meter")
		for driver, want := range map[string]string{
			"":    fmt.Sprintf("%+v <nil>\n%+v <nil>\n", fakeReadings(1), fakeReadings(2)),
			"old": fmt.Sprintf("%+v <nil>\n%+v <nil>\n", oldReadings, oldReadings),
		} {
			install(t, "")
			if driver == "old" {
				installOld(t)
			}
			cmd := exec.Command(program, generous.String())
			cmd.Stdin, cmd.Env = strings.NewReader("\n\n"), append(os.Environ(), env)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("CGO_ENABLED=%s, %s driver: got %s (%v), want %s", cgo, driver, out, err, want)
			}
		}
	}
}

// reader is a program that reads GPUs, in a process that can be killed.
func reader(t *testing.T) (parent *exec.Cmd, ask func(), answer func() string) {
	t.Helper()
	parent = exec.Command(build(t, "0", "meter"), generous.String())
	stdin, stdout := pipetest.Start(t, parent)
	t.Cleanup(func() { parent.Process.Kill(); parent.Wait() })
	lines := bufio.NewReader(stdout)
	ask = func() { io.WriteString(stdin, "\n") }
	return parent, ask, func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Errorf("the program has no answer: %v", err)
		}
		return line
	}
}

func TestMeterOutlivesNoDeadParent(t *testing.T) {
	install(t, "")
	parent, ask, answer := reader(t)
	ask()
	if got, want := answer(), fmt.Sprintf("%+v <nil>\n", fakeReadings(1)); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	child := descriptor(t, childOf(t, parent.Process.Pid))
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	exited(t, child)
}

func TestHangingMeterOutlivesNoDeadParent(t *testing.T) {
	for _, fault := range []string{"hang", "hang in use"} {
		w := wedged(t, fault)
		parent, ask, _ := reader(t)
		ask()
		w.held()
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		w.released()
	}
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for _, list := range lists {
		text, _ := os.ReadFile(list) // of a thread that has ended by now
		all += string(text)
	}
	if child, err = strconv.Atoi(strings.TrimSpace(all)); err != nil {
		t.Fatalf("the children of %d are %q, want one", pid, all)
	}
	return child
}

// descriptor refers to a process even if its number is reused.
func descriptor(t *testing.T, pid int) (fd int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd_open %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// exited waits until a process has exited.
func exited(t *testing.T, fd int) {
	t.Helper()
	for {
		switch n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(generous.Milliseconds())); {
		case err == unix.EINTR:
		case err != nil || n == 0:
			t.Fatalf("the process lives on (%v)", err)
		default:
			return
		}
	}
}
