package launcher

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/discovery"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/peers"
	"github.com/golaunch/golaunch/launcher/report"
)

// Client asks the coordinator of a cluster. It may be used by several goroutines.
//
// An error of a Client's methods is an ErrUsage if the request makes no sense to the coordinator.
// If the request is about something that does not exist, the error is an ErrNotThere too.
type Client struct {
	// Target is the coordinator's HOST:PORT; several are separated by commas.
	Target string

	head *session.Client
	tls  *tls.Config
}

// Connect connects to the coordinator at HOST:PORT. The argument may be several addresses,
// separated by commas; Connect then uses one of them. If coordinator is empty, it takes the
// coordinator that this user runs on this machine. TokenFile is as in a Job's Network.
func Connect(ctx context.Context, coordinator, tokenFile string) (*Client, error) {
	if coordinator == "" {
		var err error
		if coordinator, err = discovery.Find(ctx); err != nil {
			return nil, fmt.Errorf("%w; give --coordinator HOST:PORT", err)
		}
		if coordinator == "" {
			return nil, ErrNoCoordinator
		}
	}
	addrs, err := peers.Resolve(ctx, coordinator, DefaultPort)
	if err != nil {
		return nil, err
	}
	token, err := mtls.FindToken(tokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return nil, err
	}
	config := mtls.Client(token, mtls.Identity{})
	c, err := session.Connect(ctx, session.ClientOptions{Target: strings.Join(addrs, ","), Dial: address.Dial, TLS: config})
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		err = fmt.Errorf("%w; start one there (golaunch coordinator), or name another (--coordinator HOST:PORT)", err)
	}
	if err != nil {
		return nil, err
	}
	return &Client{coordinator, c, config}, nil
}

// ConnectJob connects to a job's own coordinator if this user runs the job on this machine.
// Otherwise it does what Connect does.
func ConnectJob(ctx context.Context, coordinator, tokenFile, job string) (*Client, error) {
	if coordinator == "" && job != "" {
		if c, err := connectLocal(ctx, job); !errors.Is(err, discovery.ErrNoJob) {
			return c, err
		}
	}
	c, err := Connect(ctx, coordinator, tokenFile)
	if errors.Is(err, ErrNoCoordinator) && job != "" {
		return nil, fmt.Errorf("job %s does not run here%s, and %w", job, leftBehind(job), err)
	}
	return c, err
}

// leftBehind says where the logs are of a job that ran on this machine without a cluster.
func leftBehind(job string) string {
	dir := filepath.Join(jobdir.Temp(), job)
	if info, err := os.Stat(dir); !wire.ValidName(job) || err != nil || !info.IsDir() {
		return ""
	}
	return " any more (its logs are in " + dir + ")"
}

// LocalJobs returns the IDs of this user's jobs with a coordinator of their own on this machine:
// the jobs that were not submitted to a cluster.
func LocalJobs(ctx context.Context) ([]string, error) { return discovery.Jobs(ctx) }

func connectLocal(ctx context.Context, job string) (*Client, error) {
	var met atomic.Bool
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := discovery.Dial(ctx, job)
		switch {
		case err == nil:
			met.Store(true)
		case met.Load() && errors.Is(err, discovery.ErrNoJob):
			return nil, &session.RequestError{Target: localTarget, Why: "job " + job + " is over", Bad: true, NotThere: true}
		}
		return conn, err
	}
	c, err := session.Connect(ctx, session.ClientOptions{Target: localTarget, Dial: dial})
	if err != nil {
		return nil, err
	}
	return &Client{localTarget, c, nil}, nil
}

// localTarget stands for a job's own coordinator in messages.
const localTarget = "this machine"

// TLS is how a controller connects to the addresses of [Client.Endpoints]; nil for a job's own
// coordinator on this machine.
func (c *Client) TLS() *tls.Config { return c.tls }

// Local reports whether this is a job's own coordinator on this machine, which ends with the job.
func (c *Client) Local() bool { return c.Target == localTarget }

// Close ends the client, and the jobs that it submitted unless they are detached.
func (c *Client) Close() error { return c.head.Close() }

// Submit gives a job to the cluster. The watch reports the decisions about the job. If the watch is
// closed before the job's end, or ctx ends, the job is stopped, unless it is Detached. Submit
// ignores the job's Output and Ranks.Stdin: read the output by Logs.
func (c *Client) Submit(ctx context.Context, j Job) (*Watch, error) {
	j.Cluster.Coordinator = c.Target
	j, err := j.complete()
	if err != nil {
		return nil, err
	}
	s, err := j.remote()
	if err != nil {
		return nil, err
	}
	archive, err := jobdir.Pack(j.Workspace, j.WorkspaceLimit)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	if s.Workspace = archive.Workspace; s.Workspace.ID != "" {
		if err := c.head.Offer(ctx, s.Workspace, archive.Reader); err != nil {
			return nil, refusalOf(err)
		}
	}
	return watchOf(c.head.Submit(ctx, s))
}

// Watch follows a submitted job.
func (c *Client) Watch(ctx context.Context, id string) (*Watch, error) {
	return watchOf(c.head.Watch(ctx, id))
}

// Stop asks for the end of a job, or of all jobs when id is empty, with an exit code and the
// reason. It returns the IDs of these jobs at once. A second call kills what is still alive.
func (c *Client) Stop(ctx context.Context, id string, code int, why string) ([]string, error) {
	return c.stopped(id)(c.head.Stop(ctx, id, code, why))
}

// Save stops jobs as Stop does, but waits until the ranks have saved a checkpoint, or the time
// within is over. The Saves of the job's Result says what they saved.
func (c *Client) Save(ctx context.Context, id string, within time.Duration, code int, why string) ([]string, error) {
	if within <= 0 {
		return nil, fmt.Errorf("%w: ranks cannot save within %s", ErrUsage, within)
	}
	return c.stopped(id)(c.head.Save(ctx, id, within, code, why))
}

// stopped turns the coordinator's answer to a request to stop into the caller's answer. A local job
// that has just ended counts as stopped.
func (c *Client) stopped(id string) func([]string, error) ([]string, error) {
	return func(jobs []string, err error) ([]string, error) {
		if err = refusalOf(err); c.Target == localTarget && errors.Is(err, ErrNotThere) {
			return []string{id}, nil
		}
		return jobs, err
	}
}

// Signal forwards SIGUSR1 or SIGUSR2 to the ranks of a job.
func (c *Client) Signal(ctx context.Context, id string, number syscall.Signal) error {
	return refusalOf(c.head.Signal(ctx, id, number))
}

// Drain takes a node out of use and returns the jobs that still hold a part of it. The node's agent
// leaves when no job holds anything there.
func (c *Client) Drain(ctx context.Context, node string) ([]string, error) {
	return refused(c.head.Drain(ctx, node))
}

// Swap makes the jobs give up a node. Their ranks there have the time within to get ready. Swap
// returns when the node's agent has left.
func (c *Client) Swap(ctx context.Context, node string, within time.Duration) error {
	return refusalOf(c.head.Swap(ctx, node, within))
}

// Status describes the cluster.
func (c *Client) Status(ctx context.Context) (report.Status, error) {
	return c.Query(ctx, report.Query{})
}

// Query describes a part of the cluster.
func (c *Client) Query(ctx context.Context, q report.Query) (report.Status, error) {
	return refused(c.head.Query(ctx, q))
}

// Job describes one job.
func (c *Client) Job(ctx context.Context, id string) (report.JobStatus, error) {
	return refused(c.head.Job(ctx, id))
}

// refusal is a coordinator's refusal of a request that it can never grant.
type refusal struct {
	error
	notThere bool
}

func (r refusal) Is(target error) bool {
	return target == ErrUsage || r.notThere && target == ErrNotThere
}
func (r refusal) Unwrap() error { return r.error }

// refusalOf makes an ErrUsage of a refusal, with the same text.
func refusalOf(err error) error {
	if r, ok := errors.AsType[*session.RequestError](err); ok && r.Bad {
		return refusal{err, r.NotThere}
	}
	return err
}

// refused is an answer whose error may be a refusal.
func refused[A any](answer A, err error) (A, error) { return answer, refusalOf(err) }

// remote returns the job as a cluster gets it, without what depends on the caller's process.
func (j Job) remote() (replica.Submission, error) {
	s := j.submission()
	s.Job.FixedPool = false
	s.Detached, s.Within, s.Backfill, s.GPUs = j.Cluster.Detached, j.Cluster.Within, j.Cluster.Backfill, j.Cluster.GPUs
	s.Priority = cluster.Priority(j.Cluster.Priority)
	err := j.resolveEnv()
	if err != nil {
		return s, err
	}
	if j.Dir == "" && j.Workspace == "" {
		if j.Dir, err = os.Getwd(); err != nil {
			return s, fmt.Errorf("cannot tell the working directory: %w; give one with --dir", err)
		}
	}
	if j.Output.LogDir != "" { // a relative path starts at this process's directory, not at the agent's
		if j.Output.LogDir, err = filepath.Abs(j.Output.LogDir); err != nil {
			return s, fmt.Errorf("cannot tell where the logs go: %w", err)
		}
	}
	j.Ranks.Stdin, j.Network.TokenFile = false, ""
	j.Resources.Order.List, j.Resources.PerNode = nil, nil // they may be long, and only the coordinator needs them
	s.Task, err = json.Marshal(j)
	return s, err
}

// Watch follows a job of a cluster. It continues after broken connections and restarts of the
// coordinator.
type Watch struct {
	// Job is the job's ID.
	Job string

	head *session.Watch
}

func watchOf(w *session.Watch, err error) (*Watch, error) {
	if err != nil {
		return nil, refusalOf(err)
	}
	return &Watch{w.Job, w}, nil
}

// Next waits for the next decision. The last decision has the Result; after it, Next returns
// io.EOF. Next fails when the ctx of Submit or Watch ends, when the coordinator does not come back,
// or when the coordinator no longer has the job.
func (w *Watch) Next(ctx context.Context) (report.Decision, error) {
	for {
		u, err := w.head.Next(ctx)
		switch {
		case err != nil:
			return report.Decision{}, refusalOf(err)
		case u.Decision != nil:
			return *u.Decision, nil
		case u.Result != nil:
			return report.Decision{At: time.Now(), Reason: u.Result.Reason, News: true, Result: u.Result}, nil
		}
	}
}

// result waits for the end of the job. It calls observe for each decision before that.
func (w *Watch) result(ctx context.Context, observe func(report.Decision)) (report.Result, error) {
	for {
		d, err := w.Next(ctx)
		switch {
		case err != nil:
			return report.Result{}, err
		case d.Result != nil:
			return *d.Result, nil
		}
		observe(d)
	}
}

// Close ends the watch. If Submit made the watch, Close stops the job too, unless the job is
// detached.
func (w *Watch) Close() { w.head.Close() }

// Logs reads the output of a job's ranks from their nodes, over connections that may break. The
// chunks of a rank are in order. If there is an error, it is the last value.
func (c *Client) Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error] {
	return func(yield func(report.LogChunk, error) bool) {
		r, err := c.head.Logs(ctx, id, f)
		if err != nil {
			yield(report.LogChunk{}, refusalOf(err))
			return
		}
		defer r.Close()
		for {
			chunk, err := r.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(chunk, refusalOf(err)) || err != nil {
				return
			}
		}
	}
}
