package stacks

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// TestSpy has a py-spy in the PATH that prints what the real one printed about another process.
func TestSpy(t *testing.T) {
	dir := t.TempDir()
	said, err := filepath.Abs("testdata/py-spy.json")
	if err != nil {
		t.Fatal(err)
	}
	writeSpy(t, dir, "echo \"$@\" >&2\n[ -e "+dir+"/fail ] && exit 1\n/bin/cat "+said)
	t.Setenv("PATH", dir)
	p := Process{PID: os.Getpid()}
	threads, cut, err := spied(t.Context(), p, unknown(99))
	if err != nil || cut || len(threads) != 2 || at(threads[1].Frames[0]) != "Thread._bootstrap threading.py:1002" {
		t.Errorf("py-spy returns %+v (cut: %v): %v", threads, cut, err)
	}
	if err := os.WriteFile(dir+"/fail", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = spied(t.Context(), p, unknown(99))
	want := "Python's frames cannot be read: the memory of Python 3.99 is not known; py-spy: exit status 1: dump --nonblocking --json --pid " +
		strconv.Itoa(os.Getpid()) + "; install py-spy on this node, in the PATH of the agent, to see them"
	if err == nil || missing(err, nil) != want {
		t.Errorf("it says %q", missing(err, nil))
	}
}

func writeSpy(t *testing.T, dir, script string) {
	t.Helper()
	if err := os.WriteFile(dir+"/py-spy", []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestOthersSpy: neither a py-spy that a rank installed nor one in the PATH is run for another
// user's rank.
func TestOthersSpy(t *testing.T) {
	ran := t.TempDir() + "/ran"
	ours, theirs := t.TempDir(), t.TempDir()
	if err := os.Mkdir(theirs+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	writeSpy(t, ours, ": >"+ran)
	writeSpy(t, theirs+"/bin", ": >"+ran)
	t.Setenv("VIRTUAL_ENV", theirs)
	p := start(t, pythons(t)[0], "testdata/program.py")
	t.Setenv("PATH", "/nowhere")
	_, _, beside := spied(t.Context(), Process{PID: p.Process.Pid}, unknown(99))
	t.Setenv("PATH", ours)
	other := &safefile.Rights{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	_, _, submitted := spied(t.Context(), Process{PID: p.Process.Pid, Rights: other}, unknown(99))
	if _, err := os.Stat(ran); err == nil || beside.Error() != unknown(99).Error() || submitted.Error() != unknown(99).Error() {
		t.Errorf("a py-spy was run: %v; %v", beside, submitted)
	}
	if text := missing(submitted, other); !strings.HasSuffix(text, "is not known; py-spy is not run for ranks of other users than the agent's") {
		t.Errorf("it says %q", text)
	}
}

// TestSpyLeavesNothing has a py-spy that ends, or hangs, and leaves a process behind that holds a
// pipe.
func TestSpyLeavesNothing(t *testing.T) {
	for _, end := range []string{"exit 0", "wait"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			writeSpy(t, dir, "exec 3>"+dir+"/lives\n/bin/sleep 100 >&- 2>&- &\necho begun >&3\n"+end)
			if err := unix.Mkfifo(dir+"/lives", 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = runSpy(ctx, dir+"/py-spy", os.Getpid()) // the output of py-spy does not matter
			}()
			lives, err := os.Open(dir + "/lives")
			if err != nil {
				t.Fatal(err)
			}
			defer lives.Close()
			if err := lives.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(lives)
			if line, err := said.ReadString('\n'); line != "begun\n" {
				t.Fatal(line, err)
			}
			if end == "wait" {
				cancel()
			}
			<-done
			if _, err := said.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("what py-spy has begun lives on: %v", err)
			}
		})
	}
}
