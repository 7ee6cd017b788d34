package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/helper/spawn"
)

// farewell is how long to wait for a killed process. A process that is stuck in the driver may
// never die.
const farewell = time.Second

// reduce is this node's part of an all-reduce: a process for each of its GPUs.
func (n *node) reduce(ctx context.Context, o order) (out outcome) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	id := make(chan meeting, 1)
	reports := make([]report, n.info.LocalWorldSize)
	var all errgroup.Group
	pipes := make([]io.WriteCloser, len(reports))
	for gpu := range reports {
		c := child{Library: n.Library, GPU: gpu, Rank: o.Base + gpu, Size: o.Size, Make: o.First && gpu == 0, Limit: o.Limit + farewell}
		run, in, err := c.start(ctx)
		if err != nil {
			cancel(err)
			_ = all.Wait() // it has no error
			return outcome{Err: fmt.Sprintf("start a process for GPU %d: %v", gpu, err), Code: "fabric-nccl"}
		}
		pipes[gpu] = in
		all.Go(func() error {
			r := run(id)
			reports[gpu] = r
			if r.Err != "" {
				cancel(fmt.Errorf("GPU %d failed", gpu))
			}
			return nil
		})
	}
	err := n.spread(ctx, o, id, pipes)
	if err != nil {
		cancel(err)
	}
	_ = all.Wait() // it has no error
	return combine(reports, err)
}

// spread passes the communicator's ID from the process that makes it to all others.
func (n *node) spread(ctx context.Context, o order, made <-chan meeting, pipes []io.WriteCloser) (err error) {
	var m meeting
	if o.First {
		select {
		case m = <-made:
		case <-ctx.Done():
			return nil // its process says why
		}
		if o.Peer != "" {
			err = put(context.WithoutCancel(ctx), n.store, meetingKey(o.Test), m)
		}
	} else {
		m, err = n.meet(ctx, o, meetingKey(o.Test))
	}
	if err != nil {
		return err
	}
	for _, in := range pipes {
		if err := json.NewEncoder(in).Encode(m); err != nil && ctx.Err() == nil {
			return fmt.Errorf("pass the communicator's ID on: %w", err)
		}
	}
	return nil
}

// combine merges the reports of all GPUs: the worst figures, and the first failure that did not
// follow from another failure.
func combine(reports []report, err error) (out outcome) {
	for _, r := range reports {
		out.Library, out.File = max(out.Library, r.Library), max(out.File, r.File)
		out.Latency = max(out.Latency, r.Latency)
		if r.Bandwidth > 0 && (out.Bandwidth == 0 || r.Bandwidth < out.Bandwidth) {
			out.Bandwidth = r.Bandwidth
		}
	}
	first := slices.IndexFunc(reports, func(r report) bool { return r.Err != "" && !r.Killed })
	if first < 0 {
		first = slices.IndexFunc(reports, func(r report) bool { return r.Err != "" })
	}
	if first >= 0 {
		out.Err, out.Code = fmt.Sprintf("GPU %d: %s", first, reports[first].Err), reports[first].Code
	}
	if err != nil {
		out.Err = err.Error()
	}
	return out
}

// start starts the child. The child reads an ID of NCCL from in. If the child makes an ID, run
// sends the ID to its channel. run returns the child's last report.
func (c child) start(ctx context.Context) (run func(chan<- meeting) report, in io.WriteCloser, err error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd, err := spawn.Command(ctx, childName, write)
	if err != nil {
		return nil, nil, errors.Join(err, read.Close(), write.Close())
	}
	cmd.Args = append(cmd.Args, string(text))
	// A user's NCCL_COMM_BLOCKING=0 would make a call return before its work is done. The child's
	// standard output goes to stderr, since NCCL may print (NCCL_DEBUG).
	cmd.Env = append(cmd.Env, "NCCL_COMM_BLOCKING=1")
	dying := &head{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = os.Stderr, dying, farewell/2
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	write.Close()
	if err != nil {
		return nil, nil, errors.Join(err, read.Close())
	}
	return func(id chan<- meeting) report { return attend(ctx, cmd, read, dying, id) }, in, nil
}

// attend reads the reports of a child until the child ends.
func attend(ctx context.Context, cmd *exec.Cmd, reports *os.File, dying *head, id chan<- meeting) (last report) {
	defer reports.Close()
	defer context.AfterFunc(ctx, func() { _ = reports.SetReadDeadline(time.Now().Add(farewell)) })() // a daemon of the driver may hold the pipe
	for lines := json.NewDecoder(io.LimitReader(reports, 1<<20)); ; {
		var r report
		if err := lines.Decode(&r); err != nil {
			break
		}
		if r.ID != "" {
			id <- meeting{ID: r.ID}
		}
		last = r
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	var err error
	select {
	case err = <-exited:
	case <-time.After(2 * farewell): // the process is in an uninterruptible sleep; the goroutine waits on
		return report{Stage: last.Stage, Killed: true, Code: last.Code, Err: fmt.Sprintf("pid %d cannot be killed: it was %s", cmd.Process.Pid, last.Stage)}
	}
	switch {
	case last.Done:
	case ctx.Err() != nil:
		last.Err, last.Killed = fmt.Sprintf("%v: it was %s", context.Cause(ctx), last.Stage), true
	default: // the output is complete, since attend has awaited the exit
		words, _, _ := bytes.Cut(dying.text, []byte("\n"))
		last.Err = strings.TrimSuffix(fmt.Sprintf("its process died %s: %v: %s", last.Stage, err, words), ": ")
	}
	return last
}

// head keeps the beginning of a dying process's output: a crash of Go has its reason there, before
// a dump of all goroutines.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), 256-len(h.text))]...)
	return len(p), nil
}
