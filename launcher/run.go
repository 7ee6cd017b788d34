package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/golaunch/golaunch/internal/process/filetimer"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/termination"
	"github.com/golaunch/golaunch/launcher/internal/torchoutput"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
)

// Run runs a job to its end. The result says how the job ended, also when it was stopped: with code
// 130 if ctx was cancelled, 124 if its deadline passed. An error is about golaunch itself. The
// result's code is then the exit code for golaunch itself: 2 for a job that can never run
// (errors.Is ErrUsage), 125 if golaunch failed, this node was refused or the coordinator was lost.
// With any other code, the job ended as the result says, and the error is about something after the
// job: output that could not be shown, or logs that could not be removed.
//
// When Run returns, no process that it started is alive. It starts this program again on this
// machine, as small helper processes, which never reach the program's main (docs/adr/0011).
func Run(ctx context.Context, j Job) (report.Result, error) {
	j, err := j.complete()
	if err != nil {
		refused := report.Result{Code: 2}
		return refused, errors.Join(err, j.writeTermination(refused, err, false))
	}
	l := newLocalRun(j)
	var result report.Result
	endTimers, err := l.serveTimers()
	if err == nil {
		result, err = l.start(ctx)
		endTimers()
	}
	return l.finish(result, err)
}

// start chooses how the nodes meet, and runs the job to its end.
func (l *localRun) start(ctx context.Context) (report.Result, error) {
	switch p := l.job.place; {
	case l.job.Resources.Simulate:
		return l.simulate(ctx)
	case l.job.Network.Rendezvous != "":
		return l.meet(ctx)
	case l.job.Cluster.Coordinator != "":
		return l.submit(ctx)
	case len(l.job.Network.Hosts) > 0:
		return l.overSSH(ctx)
	case p == nil || l.job.eachAlone() || p.Alone():
		return l.alone(ctx)
	case p.Each:
		return l.scheduled(ctx)
	}
	return l.bySlurm(ctx)
}

// alone runs the coordinator and the agent of a job on one node in this process.
func (l *localRun) alone(ctx context.Context) (report.Result, error) {
	l.holdsMore(ctx)
	node, err := l.examinedNode(ctx, true)
	if err != nil {
		return report.Result{}, err
	}
	if err := l.pack(); err != nil {
		return report.Result{}, err
	}
	if !node.Addr.IsValid() {
		node.Addr = address.Loopback(0)
	}
	if least := l.job.Resources.MinNodes; least > 1 {
		return report.Result{}, usage.Errorf("it wants %d nodes and this is one: give --rendezvous HOST:PORT on each of them, or --simulate", least)
	}
	l.job.Network.Lease, l.job.Resources.LastCall = unleased, 0 // no other node will ever join
	return l.role().Begin(ctx, nil, nil, role.Member{Options: session.Options{Node: node, Target: "this process"}})
}

// serveTimers serves torch's file timers to the ranks of this node until the caller calls end.
func (l *localRun) serveTimers() (end func(), err error) {
	if l.job.Ranks.TimerFile == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone, err := filetimer.Serve(ctx, l.job.Ranks.TimerFile, func(e filetimer.Expired) { l.Note(e.String()) }, l.Warn)
	return func() {
		cancel()
		if gone != nil {
			<-gone
		}
	}, err
}

// finish chooses the exit code for an error, reports the job's end, and clears up.
func (l *localRun) finish(result report.Result, err error) (report.Result, error) {
	switch {
	case err == nil || result.Code != 0:
	case errors.Is(err, ErrUsage):
		result.Code = 2
	default:
		result.Code = cmp.Or(l.job.Restarts.ExitCodes[report.EndInfrastructure], 125)
	}
	j := l.job
	j.Network.Name = cmp.Or(l.process.Alias, j.Network.Name)
	if err := errors.Join(j.writeTermination(result, err, l.process.Joined()), (*torchoutput.Output)(j.Output.Torch).WriteErrorFile(l.files.Dir(), result.Cause)); err != nil {
		l.Warn(err)
	}
	return result, errors.Join(err, l.leave(result, err))
}

// leave prints the report and clears up. It removes the files of a job that succeeded, or ended
// before it began, unless the user chose their directory or has not seen all output.
func (l *localRun) leave(result report.Result, err error) error {
	close(l.done)
	l.archive.Close()
	l.Settle()
	needless := l.files.Chosen == "" && result.Ending != "" && (result.Code == 0 || result.Attempts == 0)
	logs := ""
	if !needless {
		logs = l.files.Path()
		if logs != "" && l.filesOnNodes && l.files.Chosen == "" {
			logs = filepath.Join(filepath.Dir(logs), "NODE", filepath.Base(logs)) + " on each node"
		}
	}
	if l.cluster != "" {
		logs = fmt.Sprintf("golaunch logs --coordinator %s %s", l.cluster, l.job.ID)
	}
	switch {
	case l.Quiet, l.process.Muted, l.job.Cluster.Detached:
	case err == nil || result.Cause != nil:
		l.Result(result, l.evidence(result, logs))
	case logs != "":
		l.Note("logs: " + logs)
	}
	unshown := l.Console.Close()
	path := l.files.Path()
	if unshown != nil && path != "" {
		needless, unshown = false, fmt.Errorf("%w; they are in %s", unshown, path)
	}
	return errors.Join(unshown, l.files.Close(needless))
}

// writeTermination writes the termination message. It writes none for a detached job, which runs on
// without this process.
func (j Job) writeTermination(r report.Result, err error, joined bool) error {
	if j.Cluster.Detached && err == nil {
		return nil
	}
	m := termination.Message{Result: r, Err: err, Joined: joined, Node: j.Network.Name, MaxRestarts: j.Restarts.Max}
	return m.Write(j.Output.TerminationLog)
}
