// Package ranks describes the ranks that an agent has started.
package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/placement"
)

// Rank is a rank's process and its output.
type Rank struct {
	Bundle  placement.Bundle
	Process *proc.Process
	Since   time.Time
	Output  *logs.Rank
	// RAS is the address of the RAS service of the rank's NCCL; empty without a GPU.
	RAS string
	Env []string
	// Reported is closed once the coordinator has the report of the rank's exit.
	Reported chan struct{}
}

// Running reports whether the rank's process has not exited yet.
func (r Rank) Running() bool {
	select {
	case <-r.Process.Done():
		return false
	default:
		return true
	}
}

// Busiest returns the processes of a rank. Processes with more CPU time come first.
func Busiest(members []proc.Member, leader int) []proc.Member {
	own := slices.DeleteFunc(slices.Clone(members), func(m proc.Member) bool { return m.Leader != leader })
	slices.SortFunc(own, func(a, b proc.Member) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.PID, b.PID)) })
	return own
}

// Activity says what a process does, with the kernel function in which it waits: "asleep
// (futex_do_wait)".
func Activity(m proc.Member) string {
	word := map[byte]string{'R': "running", 'S': "asleep", 'D': "blocked", 'T': "stopped", 't': "traced"}[m.State]
	if m.State != 'S' && m.State != 'D' {
		return word
	}
	if in, err := procfs.ReadFile("/proc/" + strconv.Itoa(m.PID) + "/wchan"); err == nil && len(in) > 1 {
		word += fmt.Sprintf(" (%s)", in)
	}
	return word
}
