package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/report"
)

// noTerminationLog is a Job's TerminationLog that writes none.
const noTerminationLog = "none"

// podTerminationLog is the default of a container's terminationMessagePath. The kubelet takes 4096
// bytes of it
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const podTerminationLog = "/dev/termination-log"

// maxCause bounds a cause, in bytes: quoted, each takes at most four, and the line stays below
// 4096.
const maxCause = 900

// terminate writes how the job ended for the supervisor of this process. A detached job goes on
// without this process.
func (j Job) terminate(r report.Result, err error, joined bool) error {
	path := j.Output.TerminationLog
	switch {
	case path == noTerminationLog, path == "" && !pod.Inside(), j.Cluster.Detached && err == nil:
		return nil
	case path == "":
		path = podTerminationLog
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := safefile.Write(path, []byte(j.terminationLine(r, err, joined)), 0o644); err != nil {
		return fmt.Errorf("cannot write the termination message: %w; choose another file with --termination-log, or none", err)
	}
	return nil
}

// terminationLine is one line for programs; docs/kubernetes.md is its contract. The node is the one
// that failed, or this.
func (j Job) terminationLine(r report.Result, err error, joined bool) string {
	cause, where := r.Reason, ""
	if err != nil && (r.Code != 0 || cause == "") {
		cause = strings.TrimPrefix(err.Error(), ErrUsage.Error()+": ")
	}
	node := j.Network.Name
	if node == "" {
		node, _ = address.MachineName() // without one, the job has failed of that
	}
	if f := r.Cause; f != nil {
		node, cause = f.Node, f.Why
		if f.Rank >= 0 {
			where = fmt.Sprintf(" rank=%d", f.Rank)
		}
		where += fmt.Sprintf(" attempt=%d", f.Attempt)
	}
	outcome := outcome(r, cause, err != nil && joined)
	if len(cause) > maxCause {
		cause = strings.ToValidUTF8(cause[:maxCause], "") + "..."
	}
	return fmt.Sprintf("golaunch: %s code=%d node=%s%s restarts=%d/%d cause=%q\n",
		outcome, r.Code, node, where, r.Restarts, j.Restarts.Max, cause)
}

// outcome is how a job ended, in one word. left says that this node lost the job, which may go on.
func outcome(r report.Result, cause string, left bool) string {
	cancelled := strings.HasPrefix(r.Reason, "job cancelled: ") || r.Reason == "" && r.Code > 128
	switch {
	case r.Code == 0:
		return "succeeded"
	case r.Code == 125 && (left || strings.Contains(cause, " was lost: ")):
		return "lost"
	case r.Code == 124 && (r.Cause == nil || r.Cause.Exit.Code != 124):
		return "timed-out"
	case r.Ending == report.EndPreempted:
		return "preempted"
	case cancelled && r.Code != 125:
		return "cancelled"
	}
	return "failed"
}
