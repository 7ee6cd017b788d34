package failurebundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDump bounds the dump of torch's flight recorder, in bytes.
const maxDump = 16 << 20

// flightRecorder asks torch for its flight recorder's dump (DumpPipe and HeartbeatMonitor in
// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, and FlightRecorder.cpp). Any write to the pipe
// $TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe makes the process write the file
// $TORCH_FR_DUMP_TEMP_FILE<rank>, a pickle, within about a second. A rank has the pipe if it uses
// NCCL with $TORCH_NCCL_TRACE_BUFFER_SIZE above 0.
func flightRecorder(r Rank) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		get := func(name string) string { return lookup(r.Env, name) }
		stem := get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
		switch {
		case stem == "":
			return nil, errors.New("torch writes a dump only if TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set and TORCH_NCCL_TRACE_BUFFER_SIZE is above 0")
		case len(r.PIDs) == 0:
			return nil, errGone
		}
		cache := cmp.Or(get("XDG_CACHE_HOME"), filepath.Join(cmp.Or(get("HOME"), "/tmp"), ".cache"))
		dump := cmp.Or(get("TORCH_FR_DUMP_TEMP_FILE"), get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), cache+"/torch/comm_lib_trace_rank_")
		root := fmt.Sprintf("/proc/%d/root/", r.PIDs[0]) // the process may be in a container
		number := strconv.Itoa(r.Number)
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		defer cancel()
		var text []byte
		err := r.Rights.Do(func() (err error) {
			text, err = trigger(ctx, root+stem+number+".pipe", root+dump+number)
			return err
		})
		return text, err
	}
}

// readDump reads a file that a rank has named. The file may be of any kind and length.
func readDump(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDump+1))
}

// trigger writes to a pipe and waits until a file has been written and closed.
func trigger(ctx context.Context, pipe, file string) ([]byte, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch for torch's dump: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(file), unix.IN_CLOSE_WRITE); err != nil {
		return nil, fmt.Errorf("watch for torch's dump in %s: %w", filepath.Dir(file), err)
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("ask torch for its dump: %w", err)
	}
	if info, failed := w.Stat(); failed == nil && info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, errors.Join(fmt.Errorf("ask torch for its dump: %s is no FIFO", pipe), w.Close())
	}
	_, err = w.WriteString("1\n")
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("ask torch for its dump: %w", err)
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	name := append([]byte(filepath.Base(file)), 0)
	for buf := make([]byte, 64<<10); ; {
		n, err := events.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("torch was asked, and did not write %s: does it run with TORCH_NCCL_TRACE_BUFFER_SIZE above 0?", file)
		case err != nil:
			return nil, fmt.Errorf("wait for torch's dump: %w", err)
		case bytes.Contains(buf[:n], name):
			return readDump(file)
		}
	}
}

// lookup returns the value of a variable; "" if there is none.
func lookup(env []string, name string) string {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
