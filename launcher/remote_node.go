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
	"os/signal"
	"strings"
	"syscall"

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

func init() { internalverbs.ServeNode = remoteNode }

// enlistment is what an agent of a job, which golaunch starts on another node, must know before it
// joins.
type enlistment struct {
	Job Job
	// Coordinator is ADDRESS:PORT, and Token the secret of this job alone.
	Coordinator, Token string
	// Run is the ID of the run, as in jobdir.Run.
	Run string
	// Tied says that the node must end when its standard input ends.
	Tied bool
	// Slots is how many of its GPUs the node offers; 0 means all.
	Slots int
}

// readEnlistment reads the enlistment of this process from the variable helper.Enlistment or, if it
// is not set, from standard input. Other users of the machine can read neither.
func readEnlistment() (e enlistment, err error) {
	in := io.Reader(os.Stdin)
	if text, ok := os.LookupEnv(helper.Enlistment); ok {
		in = strings.NewReader(text)
	}
	err = os.Unsetenv(helper.Enlistment) // other users may be able to read the environment of processes that this one starts
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

// signals returns the signals of this process. If the process is tied to its standard input, the
// end of the input counts as SIGHUP.
func (e enlistment) signals() <-chan os.Signal {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // so that a write to a lost console fails and does not end the process
	if e.Tied {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			heard <- syscall.SIGHUP
		}()
	}
	return heard
}

// remoteNode is the main function of an agent that another golaunch started. The coordinator
// reports how the job ended. So this process exits with an error only if it failed before it
// joined, because the coordinator does not know of such a failure.
func remoteNode() int {
	name, _ := os.Hostname()
	e, err := readEnlistment()
	if err == nil {
		err = serve(e)
	}
	if err != nil {
		e.Job.printError(fmt.Errorf("%s: %w", cmp.Or(e.Job.Network.Name, name), err))
		return 125
	}
	return 0
}

// errOver says that the job ended before this node could join: the coordinator does not answer,
// although it listened before the first agent was started.
var errOver = errors.New("the job is over")

func serve(e enlistment) error {
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
