package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/placement"
)

// remoteVar is where the agent of a node which golaunch started from elsewhere finds what it must know, or else on its standard input:
// no other user of the machine can read either.
const remoteVar = helper.Enlistment

func init() { internalverbs.ServeNode = remote }

// enlistment is what such a process must know.
type enlistment struct {
	Job Job
	// Coordinator is ADDRESS:PORT, and Token the secret of this job alone.
	Coordinator, Token string
	// Run is as in here.
	Run string
	// Tied says that standard input stays open for as long as the node is wanted.
	Tied bool
	// Slots is how many of the node's GPUs it offers; 0 all.
	Slots int
}

// remotely runs the coordinator here and has start start agents elsewhere, which read an enlistment from their standard input. start
// returns when they have all ended, or when the job cannot go on without those that have; its context then ends with the job.
func (h *here) remotely(ctx context.Context, start func(context.Context, enlistment) error) (Result, error) {
	own, err := h.job.headAddr(ctx)
	if err != nil {
		return Result{}, err
	}
	l, err := h.job.Network.ports().Listen(ctx, own.String())
	if err != nil {
		return Result{}, fmt.Errorf("cannot listen on %v for the nodes of the job: %w", own, err)
	}
	token := mtls.NewToken()
	e := enlistment{Job: h.job, Coordinator: l.Addr().String(), Token: token.Text(), Run: h.run}
	if h.job.Resources.PlacementTimeout == 0 {
		h.job.Resources.PlacementTimeout = startLimit
	}
	n := &e.Job.Network
	n.Address, n.Interface, n.Name, n.TokenFile, n.Hosts, e.Job.Ranks.Stdin = "", "", "", "", nil, false
	h.spread = true
	return h.afar(ctx, l, mtls.Server(token, mtls.Identity{Job: h.job.ID}), func(ctx context.Context) error {
		err := start(ctx, e)
		if err == nil || errors.Is(err, errUnreached) {
			return err
		}
		select { // that agents fail while the job ends is no news
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

// startLimit bounds the wait for agents, which are all started at once.
const startLimit = 5 * time.Minute

// endOfJob is how long a job may take to end that has lost all its nodes.
const endOfJob = 2 * time.Second

// headAddr is where the nodes reach the coordinator.
func (j Job) headAddr(ctx context.Context) (netip.Addr, error) {
	node := placement.Node{Name: j.Network.Name}
	var err error
	if node.Name == "" {
		if node.Name, err = address.MachineName(); err != nil {
			return node.Addr, err
		}
	}
	if node.Addr, err = j.given(node.Name); err != nil {
		return node.Addr, err
	}
	if node.Others, err = address.Global(); err != nil {
		return node.Addr, err
	}
	return address.Reachable(ctx, node)
}

// remote is the whole life of an agent that was started from elsewhere. It says nothing of the job's end, which the coordinator
// does, and fails only if that does not know of it.
func remote() int {
	name, _ := os.Hostname()
	e, err := enlisted()
	if err == nil {
		err = e.serve()
	}
	if err != nil {
		e.Job.complain(fmt.Errorf("%s: %w", cmp.Or(e.Job.Network.Name, name), err))
		return 125
	}
	return 0
}

func enlisted() (e enlistment, err error) {
	in := io.Reader(os.Stdin)
	if text, ok := os.LookupEnv(remoteVar); ok {
		in = strings.NewReader(text)
	}
	err = os.Unsetenv(remoteVar) // the processes that this one starts can be looked at
	// The token is in this process's memory: neither a core file nor another process of the user may have it.
	err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	if err == nil {
		d := json.NewDecoder(io.LimitReader(in, maxOrder))
		d.DisallowUnknownFields()
		err = d.Decode(&e)
	}
	if err != nil {
		return e, fmt.Errorf("this process should have been told what its job is: %w; install the same golaunch on all nodes", err)
	}
	return e, nil
}

func (e enlistment) serve() error {
	if e.Tied {
		greet()
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
	h := arrive(j)
	h.run = e.Run
	node, err := h.offer(ctx, false)
	if err != nil {
		return err
	}
	if e.Slots > 0 {
		node.GPUs = node.GPUs[:min(e.Slots, len(node.GPUs))]
	}
	h.subdir, h.job.Output.Quiet = node.Name, true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result, err := h.join(ctx, node, e.Coordinator, func(_ context.Context, node placement.Node) (membership, error) {
		m := h.member(node, e.Coordinator, token)
		dial := m.Dial
		m.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := dial(ctx)
			if errors.Is(err, syscall.ECONNREFUSED) && !h.joined.Load() {
				cancel(errOver)
			}
			return conn, err
		}
		return m, nil
	})
	if errors.Is(err, errOver) {
		result, err = Result{}, nil
	}
	_, err = h.finish(result, err)
	if h.joined.Load() && err != nil {
		e.Job.complain(fmt.Errorf("%s: %w", node.Name, err))
		return nil
	}
	return err
}

// errOver says that the job is over before this node could join: the coordinator listened before the first agent was started.
var errOver = errors.New("the job is over")

// signals are what this process is told. The end of a standard input that it is tied to is a hangup.
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

// errUnstarted says why agents could not be started.
var errUnstarted = errors.New("cannot start golaunch on the nodes")
