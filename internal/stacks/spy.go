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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// spies bounds the py-spys that run at a time on this node: each takes about a tenth of a second of a processor.
	spies = 2
	// spyLimit is how long one may take.
	spyLimit = 10 * time.Second
	// maxSpied bounds what one prints, in bytes.
	maxSpied = 8 << 20
)

var spyTurns = make(chan struct{}, spies)

// spied asks py-spy, because of an error, which is returned where there is none.
func spied(ctx context.Context, p Process, st status, because error) ([]Thread, bool, error) {
	path := spy(p, st)
	if path == "" {
		return nil, false, because
	}
	ctx, cancel := context.WithTimeout(ctx, spyLimit)
	defer cancel()
	select {
	case spyTurns <- struct{}{}:
		defer func() { <-spyTurns }()
	case <-ctx.Done():
		return nil, false, errors.New("other ranks took all the time that there was for py-spy")
	}
	out, err := runSpy(ctx, path, p)
	if err != nil {
		return nil, false, fmt.Errorf("%w; py-spy: %w", because, err)
	}
	return parseSpy(out, p.PID)
}

// spy is the path of py-spy: golaunch's, or one beside the program of the process, if that is run by its own user.
func spy(p Process, st status) string {
	if path, err := exec.LookPath("py-spy"); err == nil {
		return path
	}
	if p.Rights == nil && st.uid != uint32(os.Geteuid()) {
		return ""
	}
	for _, dir := range programs(p.PID) {
		path := filepath.Join(dir, "py-spy")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// programs are the directories of a process's programs.
func programs(pid int) (dirs []string) {
	dir := "/proc/" + strconv.Itoa(pid)
	if exe, err := os.Readlink(dir + "/exe"); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	environ, err := large(dir + "/environ")
	if err != nil {
		return dirs
	}
	for pair := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := strings.Cut(string(pair), "=")
		switch name {
		case "VIRTUAL_ENV", "CONDA_PREFIX":
			dirs = append(dirs, filepath.Join(value, "bin"))
		case "PATH":
			dirs = append(dirs, filepath.SplitList(value)...)
		}
	}
	return slices.DeleteFunc(dirs[:min(len(dirs), maxChildren)], func(dir string) bool { return !filepath.IsAbs(dir) })
}

// runSpy is what it prints. It is run as the rank's user, does not stop the process, and is killed when ctx ends.
func runSpy(ctx context.Context, path string, p Process) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, "dump", "--nonblocking", "--json", "--pid", strconv.Itoa(p.PID))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if cmd.SysProcAttr.Credential, err = p.Rights.Credential(); err != nil {
		return nil, err
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, complaint limited
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", cmp.Or(context.Cause(ctx), err), lastLine(complaint.Bytes()))
	}
	return out.Bytes(), nil
}

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, maxSpied-l.Len()))])
	return len(p), nil
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return clean(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}

// spiedThread is a thread as py-spy tells of it.
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
		return nil, false, fmt.Errorf("read what py-spy says: %w", err)
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
