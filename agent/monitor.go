package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/hyperpod"
	"github.com/golaunch/golaunch/agent/internal/rankmonitor"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/stall"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/rankenv"
)

// CheckRankMonitor returns why a text does not configure NVRx's rank monitor. The text is "on", or
// items separated by commas: SECTION:SECONDS, or KEY=VALUE as in NVRx's own configuration. SECONDS
// may be "none".
func CheckRankMonitor(text string) error {
	_, err := rankmonitor.Parse(text)
	return err
}

var errMonitorKept = errors.New("the ranks want NVRx's rank monitor (--rank-monitor) or HyperPod's socket (--inprocess-restart), whose clients end with the agent's connection; start the agent without --adopt")

// serveMonitor serves NVRx's rank monitor, or HyperPod's socket, to the ranks of the attempt.
func (a *attempt) serveMonitor() {
	task := a.job.work.Task
	switch {
	case a.setup.err != nil, task.RankMonitor == "" && task.InProcessRestart == 0:
	case a.job.node.starter.Keeper != nil:
		a.setup.err = errMonitorKept
	case task.RankMonitor != "":
		a.serveRankMonitor(task)
	default:
		a.serveHyperPod(task)
	}
}

func (a *attempt) serveRankMonitor(task Task) {
	o := rankmonitor.Options{Learned: &a.job.learned, Mine: a.owns, Asked: a.asked, Warn: a.job.node.Warn}
	o.UID, o.GID = a.job.owner()
	for _, b := range a.order.Group.Bundles {
		o.Ranks = append(o.Ranks, b.Rank)
	}
	if o.Config, a.setup.err = rankmonitor.Parse(task.RankMonitor); a.setup.err == nil {
		a.setup.monitor, a.setup.err = rankmonitor.Serve(o)
	}
}

// owner returns the user who owns the ranks.
func (j *jobOnNode) owner() (uid, gid int) {
	if u := j.work.User; u != nil {
		return int(u.UID), int(u.GID)
	}
	return os.Geteuid(), os.Getegid()
}

// serveHyperPod serves HyperPod's socket. The nodes of a job agree in the job's store.
func (a *attempt) serveHyperPod(task Task) {
	w, env := a.order.World, rankenv.Facts.InProcess
	o := hyperpod.Options{
		World: w.WorldSize, Attempt: a.order.Attempt, Node: a.order.Group.NodeRank - w.FirstNode, Addr: a.job.node.session.Node.Addr,
		Limit: task.InProcessRestart, Saves: &a.job.told, Mine: a.owns, Warn: a.job.node.Warn, Restart: a.restartAsked,
	}
	o.UID, o.GID = a.job.owner()
	master, err := netip.ParseAddr(w.MasterAddr)
	if err != nil {
		a.setup.err = fmt.Errorf("serve HyperPod's socket: %w", err)
		return
	}
	o.Store = netip.AddrPortFrom(master, uint16(w.MasterPort))
	for _, b := range a.order.Group.Bundles {
		f := a.facts(b)
		o.Ranks = append(o.Ranks, hyperpod.Rank{Rank: b.Rank, Own: f.Rank, LocalRank: f.LocalRank, Env: env(f)})
	}
	a.setup.hyperPod, a.setup.err = hyperpod.Serve(o)
}

// restartAsked ends a rank that asks for a restart of its processes.
func (a *attempt) restartAsked(rank int, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.ranks, func(r ranks.Rank) bool { return r.Bundle.Rank == rank })
	if i < 0 || a.halt.ordered || !a.ranks[i].Running() {
		return
	}
	if len(a.requests) < maxRequests {
		a.requests = append(a.requests, rankmonitor.Request{Rank: rank, Action: restartAction, Why: why})
	}
	a.job.node.Warn(fmt.Errorf("rank %d asks for a restart of its process: %s", rank, why))
	if err := unix.Kill(-a.ranks[i].Process.Pid(), unix.SIGKILL); err != nil { // the kernel does not reuse the ID of the process group before the scope has ended
		a.job.node.Warn(fmt.Errorf("cannot end rank %d, which asks for that: %w", rank, err))
	}
}

// maxRequests bounds how many requests of an attempt's ranks are kept. maxRequest bounds the
// reported text of a request, in bytes.
const (
	maxRequests = 8
	maxRequest  = 256
)

// restartAction asks for a restart of the processes.
const restartAction = rankmonitor.ActionEnd + 1

func (a *attempt) asked(r rankmonitor.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Action != rankmonitor.ActionContinue && len(a.requests) < maxRequests {
		a.requests = append(a.requests, r)
	}
}

// withRequests adds the requests of the ranks here to the last lines of a failed rank. Package
// verdict recognizes the text of a request.
func (a *attempt) withRequests(tail string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		what := "the end of the job"
		switch r.Action {
		case rankmonitor.ActionExclude:
			what = "a restart without this node"
		case restartAction:
			what = "a restart of its process"
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

// closeServers ends what serves the ranks once the ranks have ended.
func (a *attempt) closeServers() {
	if a.setup.lighthouse != nil {
		a.setup.lighthouse.Close()
	}
	if a.setup.monitor != nil {
		a.setup.monitor.Close()
	}
	if a.setup.hyperPod != nil {
		a.setup.hyperPod.Close()
	}
}

// monitor returns the receiver of the ranks' messages about themselves; nil if there is none.
func (a *attempt) monitor() stall.Monitor {
	switch {
	case a.setup.monitor != nil:
		return a.setup.monitor
	case a.setup.hyperPod != nil:
		return a.setup.hyperPod
	}
	return nil
}
