package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/filetimer"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// Limits on waiting that are not the user's to set.
const (
	resolveLimit = 10 * time.Second
	// unleased is the lease of an agent in the coordinator's own process: neither can lose the other, and a process that was
	// stopped (^Z) or a machine that was paused finds its ranks alive.
	unleased = 10 * 365 * 24 * time.Hour
)

// leaseParts are the parts of a lease: how long an agent keeps its ranks without a word from the coordinator, and how long it then has to kill
// them. With a quarter of a second for a busy machine this is over as soon as its node counts as lost.
func leaseParts(lease time.Duration) (silence, kill time.Duration) {
	return lease - lease/10, lease/10 + 250*time.Millisecond
}

// Run runs a job to its end. The result says how the job ended, also when it was stopped: with code 130 if ctx was cancelled, 124
// if its deadline came. The error is about golaunch itself, and the result's code is the exit code that fits: 2 for a job that can
// never run (errors.Is ErrUsage), 125 where golaunch failed, this node was refused or the coordinator was lost. With any other
// code the job ended as the result says, and the error is about what followed: output that could not be shown, logs that could
// not be removed.
//
// When Run returns, no process that it started lives any more. It starts this same program anew for small helpers of the job, on this
// machine, which never reach the program's main (docs/adr/0011).
func Run(ctx context.Context, j Job) (Result, error) {
	j, err := j.complete()
	if err != nil {
		refused := Result{Code: 2}
		return refused, errors.Join(err, j.terminate(refused, err, false))
	}
	h := arrive(j)
	var result Result
	over, err := h.timers()
	if err == nil {
		result, err = h.part(ctx)
		over()
	}
	return h.finish(result, err)
}

// timers serves torch's file timers to the ranks of this node, until over.
func (h *here) timers() (over func(), err error) {
	if h.job.Ranks.TimerFile == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone, err := filetimer.Serve(ctx, h.job.Ranks.TimerFile, func(e filetimer.Expired) { h.say(e.String()) }, h.warn)
	return func() {
		cancel()
		if gone != nil {
			<-gone
		}
	}, err
}

// finish chooses the exit code that fits an error, and clears up.
func (h *here) finish(result Result, err error) (Result, error) {
	switch {
	case err == nil || result.Code != 0:
	case errors.Is(err, ErrUsage):
		result.Code = 2
	default:
		result.Code = cmp.Or(h.job.Restarts.ExitCodes[report.EndInfrastructure], 125)
	}
	j := h.job
	j.Network.Name = cmp.Or(h.alias, j.Network.Name)
	if err := errors.Join(j.terminate(result, err, h.joined.Load()), h.handOn(result.Cause)); err != nil {
		h.warn(err)
	}
	return result, errors.Join(err, h.leave(result, err))
}

// part is what this process has to do in the job.
func (h *here) part(ctx context.Context) (Result, error) {
	switch {
	case h.job.Resources.Simulate:
		return h.simulate(ctx)
	case h.job.Network.Rendezvous != "":
		return h.meet(ctx)
	case h.job.Cluster.Coordinator != "":
		return h.submit(ctx)
	case len(h.job.Network.Hosts) > 0:
		return h.overSSH(ctx)
	}
	switch p := h.job.place; {
	case p == nil || h.job.solitary() || p.Alone():
		return h.alone(ctx)
	case p.Each:
		return h.together(ctx)
	}
	return h.bySlurm(ctx)
}

// here is this process's part in a job.
type here struct {
	job      Job
	console  *logs.Console
	narrator narrator
	// dir takes the files of the job with the ID opened; nil before open, which both the agent and the coordinator call.
	dir    *logs.Dir
	opened string
	// run is the same for all processes of this job, and for no other run of a job with its ID.
	run     string
	opening sync.Mutex
	// subdir is below the temporary directory, for the files of a job that names none: several nodes may share a machine.
	subdir string
	// simulated says that this process stands for a node, and that the coordinator's process has
	// said what is true of both.
	simulated bool
	// muted leaves it to another node of the job to say how it goes and ends.
	muted bool
	// leads is the coordinator of this process; nil while another node's leads the job.
	leads atomic.Pointer[rendezvous.Coordinator]
	// told says that this process, while it leads the job, was told to stop. It belongs to the
	// goroutine that hears signals, which come through hearing.
	told   bool
	merged *signals.Merged
	// alias is this node's name where its machine's own is another node's.
	alias string
	// joined says that the coordinator has taken this node in.
	joined atomic.Bool
	// spread says that the ranks' files are on other nodes.
	spread bool
	// lonely is the hint for a job that no other node finds, printed when none comes; empty for
	// most.
	lonely string
	// held is the number of GPUs that the scheduler gave the job, all of which its nodes should
	// offer; 0 if that is not known.
	held int
	// remote is the coordinator of the cluster that runs the job, if one does.
	remote string
	// left is closed when the job has ended here.
	left chan struct{}
}

func arrive(j Job) *here {
	console := j.Output.console()
	left := make(chan struct{})
	merged := signals.Merge(j.Stopping.Signals, j.Stopping.Stops, left)
	j.Stopping.Signals = merged.C
	return &here{
		job: j, console: console, narrator: narrator{say: console.Say}, left: left, run: logs.NewRun(), merged: merged,
	}
}

// open makes the directory of the job's files. A job that names no directory goes without one that
// cannot be made. The coordinator decides the job's ID.
func (h *here) open(id string) (err error) {
	h.opening.Lock()
	defer h.opening.Unlock()
	if h.dir != nil {
		return nil
	}
	base, err := logBase(h.job.Output.LogDir)
	if err == nil {
		if h.job.Output.LogDir == "" {
			base = filepath.Join(base, h.subdir)
		}
		h.dir, err = takeDir(logs.Whose{}, base, h.job.dirName(id), h.run, h.job.Output.LogDir != "")
	}
	if h.job.Output.LogDir == "" && (errors.Is(err, errNoPlace) || logs.Full(err)) {
		if !h.simulated {
			h.warn(fmt.Errorf("%w; this job goes on without files: no logs, no error files, no evidence", err))
		}
		h.dir, err = logs.NoDir(id), nil
	}
	h.opened = id
	return err
}

// takeDir takes the directory of a job for a run. Where the user has said where it is and another
// run has it, this one cannot begin; else it gets one of its own.
func takeDir(w logs.Whose, base, name, run string, asked bool) (*logs.Dir, error) {
	if !asked {
		return w.TakeFree(base, name, run)
	}
	d, err := w.TakeDir(base, name, run)
	if taken, ok := errors.AsType[*logs.TakenError](err); ok {
		return nil, usage.Errorf("%w: give this run another --job-id or --log-dir, or wait for the end of that one", taken)
	}
	return d, err
}

// enter is open for the agent, with whose job the directory goes of one that was given up for it before it began.
func (h *here) enter(id string) error {
	if err := h.forget(id); err != nil {
		return err
	}
	return h.open(id)
}

func (h *here) forget(id string) error {
	h.opening.Lock()
	defer h.opening.Unlock()
	if h.dir == nil || h.opened == id {
		return nil
	}
	dir := h.dir
	h.dir = nil
	if !dir.Made() {
		return dir.Close()
	}
	return dir.Remove()
}

// logBase is where the directories of jobs' files are: where the user says, or in the temporary directory.
func logBase(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	base := ownTemp()
	return base, private(base)
}

// ownTemp is this user's place for the files of jobs.
func ownTemp() string { return filepath.Join(os.TempDir(), fmt.Sprintf("golaunch-%d", os.Getuid())) }

// private makes a directory in a place where others can make some too, and refuses one that is not this user's alone.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w; choose one with --log-dir", errNoPlace, err)
	}
	if err := onlyMine(dir); err != nil {
		return fmt.Errorf("%w; choose another directory for logs with --log-dir", err)
	}
	return nil
}

// errNoPlace says that there can be no directory, and not that another user has planted one.
var errNoPlace = errors.New("cannot make a directory for logs")

// onlyMine refuses a directory that is not this user's alone.
func onlyMine(dir string) error {
	if err := safefile.Path(dir); err != nil {
		return err
	}
	root, err := safefile.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(safefile.Dir(root), root.Close())
}

// leave prints the report and clears up. The files of a job that ended well, or before it began, go unless the user said where he
// wants them, or has not seen all that they have, or some were there before. Of the others in the temporary directory the last jobs' stay.
func (h *here) leave(result Result, err error) error {
	close(h.left)
	h.narrator.end()
	needless := h.job.Output.LogDir == "" && result.Reason != "" && (result.Code == 0 || result.Attempts == 0)
	at := ""
	if h.dir != nil && h.dir.Path() != "" && !needless {
		at = h.dir.Path()
		if h.spread && h.job.Output.LogDir == "" {
			at = filepath.Join(filepath.Dir(at), "NODE", filepath.Base(at)) + " on each node"
		}
	}
	if h.remote != "" {
		at = fmt.Sprintf("golaunch logs --coordinator %s %s", h.remote, h.job.ID)
	}
	switch {
	case h.job.Output.Quiet, h.muted:
	case h.job.Cluster.Detached:
	case err == nil || result.Cause != nil:
		h.report(result, at)
	case at != "":
		h.say("logs: " + at)
	}
	unshown := h.console.Close()
	switch {
	case h.dir == nil, h.dir.Path() == "":
		return unshown
	case needless && unshown == nil && h.dir.Made():
		return h.dir.Remove()
	}
	if unshown != nil {
		unshown = fmt.Errorf("%w; they are in %s", unshown, h.dir.Path())
	}
	unshown = errors.Join(unshown, h.dir.Close())
	if h.job.Output.LogDir != "" {
		return unshown
	}
	return errors.Join(unshown, logs.Prune(filepath.Dir(h.dir.Path()), keptJobs))
}

// alone runs coordinator and agent in this process, joined by a pipe in memory.
func (h *here) alone(ctx context.Context) (Result, error) {
	h.holdsMore(ctx)
	node, err := h.offer(ctx, true)
	if err != nil {
		return Result{}, err
	}
	if !node.Addr.IsValid() {
		node.Addr = address.Loopback(0)
	}
	if least := h.job.Resources.MinNodes; least > 1 {
		return Result{}, usage.Errorf("it wants %d nodes and this is one: give --rendezvous HOST:PORT on each of them, or --simulate", least)
	}
	h.job.Network.Lease, h.job.Resources.LastCall = unleased, 0 // this node is all there will ever be
	l, dial := session.Pipe()
	return h.begin(ctx, l, nil, membership{Options: session.Options{Node: node, Target: "this process", Dial: dial}})
}
