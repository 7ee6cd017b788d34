// Package termination writes one line about the end of a job for the supervisor of this process,
// such as a kubelet. docs/kubernetes.md describes the line.
package termination

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
)

// none is the path with which Write writes no line.
const none = "none"

// podLog is the default of a container's terminationMessagePath. The kubelet reads 4096 bytes of
// this file
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const podLog = "/dev/termination-log"

// maxCause bounds a cause, in bytes: quoting turns a byte into at most four, and the line must stay
// below 4096 bytes.
const maxCause = 900

// Message has what this process knows about the end of a job.
type Message struct {
	Result report.Result
	// Err is golaunch's own error. Joined says that this node had joined the job before the error.
	Err    error
	Joined bool
	// Node is this node's name; empty for the host name.
	Node        string
	MaxRestarts int
}

// Write writes the line to a file. In a pod, the default is podLog if that file exists.
func (m Message) Write(path string) error {
	switch {
	case path == none, path == "" && !pod.Inside():
		return nil
	case path == "":
		path = podLog
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := safefile.Write(path, []byte(m.line()), 0o644); err != nil {
		return fmt.Errorf("cannot write the termination message: %w; choose another file with --termination-log, or none", err)
	}
	return nil
}

// line returns the line. It names the node where the failure was, or else this node.
func (m Message) line() string {
	r, node := m.Result, m.Node
	cause, where := r.Reason, ""
	if m.Err != nil && (r.Code != 0 || cause == "") {
		cause = strings.TrimPrefix(m.Err.Error(), usage.Kind().Error()+": ")
	}
	if node == "" {
		node, _ = address.MachineName() // if MachineName fails, the job failed for the same reason
	}
	if f := r.Cause; f != nil {
		node, cause = f.Node, f.Why
		if f.Rank >= 0 {
			where = fmt.Sprintf(" rank=%d", f.Rank)
		}
		where += fmt.Sprintf(" attempt=%d", f.Attempt)
	}
	outcome := outcome(r, m.Err != nil && m.Joined)
	if len(cause) > maxCause {
		cause = strings.ToValidUTF8(cause[:maxCause], "") + "..."
	}
	return fmt.Sprintf("golaunch: %s code=%d node=%s%s restarts=%d/%d cause=%q\n",
		outcome, r.Code, node, where, r.Restarts, m.MaxRestarts, cause)
}

// outcome returns one word for how the job ended. left says that this node lost its connection to
// the job, which may still run.
func outcome(r report.Result, left bool) string {
	lost := r.Cause != nil && r.Cause.Verdict.Cause == verdict.NodeLost.Cause
	stopped := r.Ending == "" && r.Code > 128 // a signal stopped this process, which does not know the job's ending
	switch {
	case r.Code == 0:
		return "succeeded"
	case r.Code == 125 && (left || lost):
		return "lost"
	case r.Code == 124 && (r.Cause == nil || r.Cause.Exit.Code != 124):
		return "timed-out"
	case r.Ending == report.EndPreempted:
		return "preempted"
	case r.Ending == report.EndCancelled, stopped:
		return "cancelled"
	}
	return "failed"
}
