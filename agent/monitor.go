package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/agent/internal/rankmonitor"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// CheckRankMonitor returns why a text is no configuration of NVRx's rank monitor. It is "on", or
// items separated by commas: SECTION:SECONDS, or KEY=VALUE as in NVRx's own configuration. SECONDS
// may be none.
func CheckRankMonitor(text string) error {
	_, err := rankmonitor.Parse(text)
	return err
}

var errMonitorKept = errors.New("the ranks want NVRx's rank monitor (--rank-monitor), whose clients end with the agent's connection; start the agent without --adopt")

// serveMonitor serves NVRx's rank monitor to the ranks of the attempt.
func (a *attempt) serveMonitor() {
	task := a.job.work.Task
	if task.RankMonitor == "" || a.job.err != nil {
		return
	}
	if a.job.node.starter.Keeper != nil {
		a.setup.monitorErr = errMonitorKept
		return
	}
	o := rankmonitor.Options{
		UID: os.Geteuid(), GID: os.Getegid(), Learned: &a.job.learned, Mine: a.owns, Asked: a.asked, Warn: a.job.node.Warn,
	}
	if u := a.job.work.User; u != nil {
		o.UID, o.GID = int(u.UID), int(u.GID)
	}
	for _, b := range a.order.Group.Bundles {
		o.Ranks = append(o.Ranks, b.Rank)
	}
	if o.Config, a.setup.monitorErr = rankmonitor.Parse(task.RankMonitor); a.setup.monitorErr == nil {
		a.setup.monitor, a.setup.monitorErr = rankmonitor.Serve(o)
	}
}

// maxRequests bounds the requests of an attempt's ranks that are kept, and maxRequest the bytes of
// one that are told.
const (
	maxRequests = 8
	maxRequest  = 256
)

func (a *attempt) asked(r rankmonitor.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Action != rankmonitor.ActionContinue && len(a.requests) < maxRequests {
		a.requests = append(a.requests, r)
	}
}

// withRequests adds what the ranks here have asked for to the last lines of one that failed: package
// verdict knows the words.
func (a *attempt) withRequests(tail string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		what := "the end of the job"
		if r.Action == rankmonitor.ActionExclude {
			what = "a restart without this node"
		}
		why := strings.Join(strings.Fields(strings.ToValidUTF8(r.Why, "")), " ")
		if len(why) > maxRequest {
			why = strings.ToValidUTF8(why[:maxRequest], "")
		}
		tail += fmt.Sprintf("\n(golaunch: rank %d asks for %s: %s)", r.Rank, what, why)
	}
	return tail
}

// owns reports whether a process belongs to the attempt.
func (a *attempt) owns(pid int) bool {
	a.mu.Lock()
	scope := a.scope
	a.mu.Unlock()
	if scope == nil {
		return false
	}
	members, err := scope.Members()
	if err != nil {
		a.job.node.Warn(err)
	}
	return slices.ContainsFunc(members, func(m proc.Member) bool { return m.PID == pid })
}

// closeMonitor ends it once the ranks have ended.
func (a *attempt) closeMonitor() {
	if a.setup.monitor != nil {
		a.setup.monitor.Close()
	}
}

// monitorSockets are where a rank finds its monitor and its launcher; empty if it has none.
func (a *attempt) monitorSockets(rank int) (monitor, launcher string) {
	if a.setup.monitor == nil {
		return "", ""
	}
	return a.setup.monitor.Path(rank - a.order.Group.Bundles[0].Rank), a.setup.monitor.Launcher()
}
