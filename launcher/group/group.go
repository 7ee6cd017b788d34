package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	endpoints "github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// leaveLimit is how long workers may take to end in order when the group is closed.
const leaveLimit = 30 * time.Second

// Group is a job on a reservation whose ranks answer calls: rankenv.Info.Serve makes a rank a
// worker. Several goroutines may use a Group at the same time.
type Group struct {
	ID string
	// OthersKeep is how much memory of a GPU each other process may keep, in bytes, when a turn of
	// this group begins ([Group.Active]). A process that has offloaded still keeps a CUDA context
	// and NCCL's buffers. It is 4 GB when 0. Set it before the first turn.
	OthersKeep int64

	client  *launcher.Client
	turns   *turns
	turn    *activeTurn // guarded by turns.mu
	watch   *launcher.Watch
	size    int
	restart job.Restart
	// disconnected gets a value when a worker's connection has ended.
	disconnected chan struct{}

	entrance
	lifetime
	state
}

// entrance is the socket to which workers of this machine connect, with the key that each worker
// must send.
type entrance struct {
	dir, key string
	socket   *net.UnixListener
}

// lifetime has what ends the goroutines of a group, and waits for their end.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
	all sync.WaitGroup
	// endWithin is how long workers may take to end in order.
	endWithin time.Duration
}

// state is what the group knows of the workers.
type state struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	workers []worker
	next    uint64
	closing bool
	// failed has the failure of each failed attempt. over is how the job ended, nil before that.
	failed map[int]*report.Failure
	over   *report.Result
	// trouble is why workers could not connect, or nil.
	trouble error
	// lastOrder is the last order, "offload" or "onload", that all workers have obeyed. obeying has
	// the attempt in which each worker obeyed it.
	lastOrder string
	obeying   []int
}

// worker is what the group knows of one worker.
type worker struct {
	// link is nil while the worker is not connected.
	link *link
	// lost is the link of a worker whose connection has ended for a reason that is not known yet.
	lost *link
	// exited is the link of a worker that has exited with code 0, and is not started again.
	exited *link
	// attempt is -1 before the worker first connects. Attempts before minAttempt are over: a late
	// connection of such an attempt may be from a worker that is about to be stopped.
	attempt    int
	minAttempt int
	node, gpu  string
	local      int
}

// Group starts a job on the reservation whose ranks are workers, and returns at once: the first
// calls wait for them. The job ends when ctx or the reservation ends, and by Close. It fails and
// restarts like any job. A call returns a [WorkerError] if its worker ends without an answer. A
// worker that exits with code 0 before Close is not started again while the others go on.
func (r *Reservation) Group(ctx context.Context, j launcher.Job) (*Group, error) {
	secret := make([]byte, endpoints.KeySize/2)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	size := 0
	for _, n := range j.Resources.PerNode {
		size += n
	}
	if len(j.Resources.PerNode) == 1 {
		size *= max(1, j.Resources.MaxNodes)
	}
	g := &Group{
		client: r.client, turns: r.turns, size: size,
		entrance: entrance{key: hex.EncodeToString(secret)}, lifetime: lifetime{endWithin: leaveLimit},
		restart: job.Restart(j.Restarts.Policy), disconnected: make(chan struct{}, 1),
		state: state{workers: make([]worker, size), changed: make(chan struct{}), failed: map[int]*report.Failure{}},
	}
	for i := range g.workers {
		g.workers[i].attempt = -1
	}
	if err := g.listen(); err != nil {
		return nil, err
	}
	j.Ranks.Endpoint = true
	j.Env = append(append([]string{}, j.Env...), "GOLAUNCH_CONTROLLER="+g.socket.Addr().String(), "GOLAUNCH_CONTROLLER_KEY="+g.key)
	w, err := r.Submit(ctx, j)
	if err != nil {
		return nil, errors.Join(err, g.unlisten())
	}
	g.ID, g.watch = w.Job, w
	g.ctx, g.end = context.WithCancelCause(ctx)
	g.turns.change(func() { g.turns.groups = append(g.turns.groups, g) })
	far := &endpoints.Reach{
		TLS: r.client.TLS(), Key: g.key, Warn: g.noteTrouble,
		Find:  func(ctx context.Context) (map[string]string, error) { return r.client.Endpoints(ctx, g.ID, findLimit) },
		Bring: g.serveRemote,
	}
	g.all.Go(func() { far.Run(g.ctx) })
	g.all.Go(func() { g.follow(far) })
	g.all.Go(g.accept)
	g.all.Go(g.findExited)
	return g, nil
}

func (e *entrance) listen() (err error) {
	if e.dir, err = endpoints.SocketDir(endpoints.ControllerPrefix); err != nil {
		return fmt.Errorf("make a directory for the controller's socket: %w", err)
	}
	if e.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(e.dir, "controller"), Net: "unix"}); err != nil {
		return errors.Join(fmt.Errorf("listen for workers: %w", err), os.RemoveAll(e.dir))
	}
	return nil
}

func (e *entrance) unlisten() error {
	err := e.socket.Close()
	if errors.Is(err, net.ErrClosed) { // closed already, because the group has ended
		err = nil
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

// Size is the number of workers.
func (g *Group) Size() int { return g.size }

// Close ends the workers in order, and waits for the end of the job. After 30 s it stops the
// remaining workers, as [launcher.Client.Stop] does. If Close could not end the workers, for
// instance because it could not reach the coordinator, the error says why. The workers then run
// until the coordinator notices that this program is gone.
func (g *Group) Close() (report.Result, error) {
	g.mu.Lock()
	g.closing = true
	for _, w := range g.workers {
		if w.link != nil {
			w.link.bye()
		}
	}
	g.mu.Unlock()
	late := time.NewTimer(g.endWithin)
	defer late.Stop()
	for {
		g.mu.Lock()
		over, changed := g.over, g.changed
		g.mu.Unlock()
		if over != nil {
			return *over, g.release(errClosed)
		}
		select {
		case <-changed:
		case <-late.C:
			if err := g.stop(); err != nil {
				err = fmt.Errorf("stop workers that did not end within %s: %w", g.endWithin, err)
				return report.Result{}, errors.Join(err, g.release(err))
			}
		case <-g.ctx.Done():
			err := context.Cause(g.ctx)
			return report.Result{}, errors.Join(err, g.release(err))
		}
	}
}

// stop ends workers that did not end in order.
func (g *Group) stop() error {
	_, err := g.client.Stop(g.ctx, g.ID, launcher.CodeStopped, fmt.Sprintf("the group was closed, and workers did not end within %s", g.endWithin))
	if errors.Is(err, launcher.ErrNotThere) { // the job has just ended
		return nil
	}
	return err
}

// release ends the parts of the group in this process. If the job still runs, the coordinator ends
// it, because the job's watch is closed.
func (g *Group) release(why error) error {
	g.end(why)
	g.watch.Close()
	err := g.unlisten()
	g.all.Wait()
	return err
}

var errClosed = errors.New("the group is closed")

// noteTrouble notes why workers cannot connect, for calls that wait for them.
func (g *Group) noteTrouble(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble = err
}

// change calls do to change the state. It wakes the goroutines that wait for a change, or for a
// turn.
func (g *Group) change(do func()) {
	defer g.turns.change(func() {})
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
	close(g.changed)
	g.changed = make(chan struct{})
}
