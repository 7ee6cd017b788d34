package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/simnode"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// remoteVar has the enlistment of an agent that this golaunch starts on another node, unless
// standard input has it: no other user of the machine can read either.
const remoteVar = helper.Enlistment

func init() { internalverbs.ServeNode = remoteNode }

// enlistment is what such an agent must know.
type enlistment struct {
	Job Job
	// Coordinator is ADDRESS:PORT, and Token the secret of this job alone.
	Coordinator, Token string
	// Run is jobdir.Run's ID.
	Run string
	// Tied says that standard input stays open for as long as the node is wanted.
	Tied bool
	// Slots is how many of the node's GPUs it offers; 0 all.
	Slots int
}

// startLimit bounds the wait for agents, which are all started at once.
const startLimit = 5 * time.Minute

// endOfJob is how long a job that has lost all its nodes may take to end.
const endOfJob = 2 * time.Second

// errUnstarted says why agents could not be started.
var errUnstarted = errors.New("cannot start golaunch on the nodes")

// remotely runs the coordinator in this process, and start starts agents elsewhere, which read an
// enlistment. start returns when they have all ended, or when the job cannot go on without those
// that have. Its context ends with the job.
func (l *localRun) remotely(ctx context.Context, start func(context.Context, enlistment) error) (report.Result, error) {
	own, err := l.job.machine().Reachable(ctx)
	if err != nil {
		return report.Result{}, err
	}
	if err := l.pack(); err != nil {
		return report.Result{}, err
	}
	listener, err := l.job.Network.ports().Listen(ctx, own.String())
	if err != nil {
		return report.Result{}, fmt.Errorf("cannot listen on %v for the nodes of the job: %w", own, err)
	}
	token := mtls.NewToken()
	e := enlistment{Job: l.job, Coordinator: listener.Addr().String(), Token: token.Text(), Run: l.files.ID}
	if l.job.Resources.PlacementTimeout == 0 {
		l.job.Resources.PlacementTimeout = startLimit
	}
	n := &e.Job.Network
	n.Address, n.Interface, n.Name, n.TokenFile, n.Hosts, e.Job.Ranks.Stdin = "", "", "", "", nil, false
	l.filesOnNodes = true
	return l.role().BeginRemote(ctx, listener, mtls.Server(token, mtls.Identity{Job: l.job.ID}), func(ctx context.Context) error {
		err := start(ctx, e)
		if err == nil || errors.Is(err, ssh.ErrNoAgent) {
			return err
		}
		select { // agents may fail while the job ends
		case <-ctx.Done():
			return nil
		case <-time.After(endOfJob):
			return err
		}
	})
}

// golaunch is the command that is a node on other machines.
func (j Job) golaunch() (string, error) {
	if j.Network.Golaunch != "" {
		return j.Network.Golaunch, nil
	}
	path, err := exec.LookPath("golaunch")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; install golaunch here and there at the same path", errUnstarted, err)
	}
	return path, nil
}

// remoteNode is the main function of an agent that another golaunch started. The coordinator tells
// how the job ended; this process fails only if the coordinator does not know of it.
func remoteNode() int {
	name, _ := os.Hostname()
	e, err := readEnlistment()
	if err == nil {
		err = e.serve()
	}
	if err != nil {
		e.Job.printError(fmt.Errorf("%s: %w", cmp.Or(e.Job.Network.Name, name), err))
		return 125
	}
	return 0
}

func readEnlistment() (e enlistment, err error) {
	in := io.Reader(os.Stdin)
	if text, ok := os.LookupEnv(remoteVar); ok {
		in = strings.NewReader(text)
	}
	err = os.Unsetenv(remoteVar) // other users can look at the processes that this one starts
	// The token is in this process's memory: keep it from core files and from the user's other
	// processes.
	err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	if err == nil {
		d := json.NewDecoder(io.LimitReader(in, simnode.MaxOrder))
		d.DisallowUnknownFields()
		err = d.Decode(&e)
	}
	if err != nil {
		return e, fmt.Errorf("this process should have been told what its job is: %w; install the same golaunch on all nodes", err)
	}
	return e, nil
}

// errOver says that the job ended before this node could join: the coordinator listened before the
// first agent was started.
var errOver = errors.New("the job is over")

func (e enlistment) serve() error {
	if e.Tied {
		ssh.Greet()
	}
	token, err := mtls.ParseToken(e.Token)
	if err != nil {
		return err
	}
	e.Job.Stopping.Standalone = true
	j, err := e.Job.complete()
	if err != nil {
		return err
	}
	ctx := context.Background()
	j.Stopping.Signals = e.signals()
	l := newLocalRun(j)
	l.files.ID = e.Run
	node, err := l.examinedNode(ctx, false)
	if err != nil {
		return err
	}
	if e.Slots > 0 {
		node.GPUs = node.GPUs[:min(e.Slots, len(node.GPUs))]
	}
	l.files.Subdir, l.Quiet = node.Name, true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result, err := l.role().Join(ctx, node, e.Coordinator, func(_ context.Context, node placement.Node) (role.Member, error) {
		m := l.member(node, e.Coordinator, token)
		dial := m.Dial
		m.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := dial(ctx)
			if errors.Is(err, syscall.ECONNREFUSED) && !l.process.Joined() {
				cancel(errOver)
			}
			return conn, err
		}
		return m, nil
	})
	if errors.Is(err, errOver) {
		result, err = report.Result{}, nil
	}
	_, err = l.finish(result, err)
	if l.process.Joined() && err != nil {
		e.Job.printError(fmt.Errorf("%s: %w", node.Name, err))
		return nil
	}
	return err
}

// signals are what this process is told. The end of a standard input that it is tied to is a
// SIGHUP.
func (e enlistment) signals() <-chan os.Signal {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a console that is gone fails a write
	if e.Tied {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			heard <- syscall.SIGHUP
		}()
	}
	return heard
}
