package stacks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSpies bounds the concurrent py-spys on this node. Each takes about a tenth of a second of
	// a CPU.
	maxSpies = 2
	// spyLimit bounds the run time of one py-spy.
	spyLimit = 10 * time.Second
	// maxSpied bounds the output of one py-spy, in bytes.
	maxSpied = 8 << 20
)

var spyTurns = make(chan struct{}, maxSpies)

// spied runs py-spy when the stacks could not be read because of an error. Without py-spy it
// returns that error.
func spied(ctx context.Context, p Process, because error) ([]Thread, bool, error) {
	path := spy(p)
	if path == "" {
		return nil, false, because
	}
	ctx, cancel := context.WithTimeout(ctx, spyLimit)
	defer cancel()
	select {
	case spyTurns <- struct{}{}:
		defer func() { <-spyTurns }()
	case <-ctx.Done():
		return nil, false, errors.New("other ranks used up the time for py-spy")
	}
	out, err := runSpy(ctx, path, p.PID)
	if err != nil {
		return nil, false, fmt.Errorf("%w; py-spy: %w", because, err)
	}
	return parseSpy(out, p.PID)
}

// spy returns the path of py-spy in golaunch's own PATH. A py-spy that a job installed does not
// count, because py-spy runs outside of the job. For ranks of another user spy returns nothing: a
// py-spy that ran as that user would be the user's process outside of the job, and a py-spy that
// ran as root would trust the memory of the ranks.
func spy(p Process) string {
	path, err := exec.LookPath("py-spy")
	if err != nil || p.Rights != nil {
		return ""
	}
	return path
}

// runSpy returns the output of py-spy, which does not stop the process. When ctx ends, runSpy kills
// py-spy and its children.
func runSpy(ctx context.Context, path string, pid int) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, "dump", "--nonblocking", "--json", "--pid", strconv.Itoa(pid))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second
	var out, complaint limited
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	awaitEnd(cmd.Process.Pid)
	_ = kill() // also its children: the number of their group is in use until Wait
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", cmp.Or(context.Cause(ctx), err), lastLine(complaint.Bytes()))
	}
	return out.Bytes(), nil
}

// awaitEnd waits until a child has ended, without reaping it.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// limited keeps the beginning of the data that is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, maxSpied-l.Len()))])
	return len(p), nil
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return clean(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}

// spiedThread is a thread in py-spy's output.
type spiedThread struct {
	Name   string `json:"thread_name"`
	TID    int    `json:"os_thread_id"`
	GIL    bool   `json:"owns_gil"`
	Frames []struct {
		Name string `json:"name"`
		File string `json:"filename"`
		Line int    `json:"line"`
	} `json:"frames"` // the innermost first
}

func parseSpy(text []byte, pid int) (threads []Thread, cut bool, err error) {
	var told []spiedThread
	if err := json.Unmarshal(text, &told); err != nil {
		return nil, false, fmt.Errorf("read the output of py-spy: %w", err)
	}
	slices.SortStableFunc(told, func(a, b spiedThread) int {
		return cmp.Or(order(a.TID == pid, b.TID == pid), cmp.Compare(a.TID, b.TID))
	})
	for _, s := range told[:min(len(told), maxThreads)] {
		t := Thread{TID: s.TID}
		if s.TID > 0 {
			t = task(pid, s.TID)
		}
		t.GIL, t.Name = s.GIL, cmp.Or(clean(s.Name), t.Name)
		for _, f := range slices.Backward(s.Frames) {
			t.Frames = append(t.Frames, Frame{Function: clean(f.Name), File: clean(f.File), Line: bounded(f.Line)})
		}
		cut = cut || len(t.Frames) > maxFrames
		t.Frames = clipped(t.Frames, maxFrames)
		threads = append(threads, t)
	}
	return threads, cut || len(told) > maxThreads, nil
}
