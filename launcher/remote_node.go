package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/enlist"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func init() { internalverbs.ServeNode = remoteNode }

type enlistment = enlist.Enlistment[Job]

// remoteNode is the main function of an agent that another golaunch started. The coordinator
// reports how the job ended. So this process exits with an error only if it failed before it
// joined, because the coordinator does not know of such a failure.
func remoteNode() int {
	name, _ := os.Hostname()
	e, err := enlist.Read[Job]()
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
	j.Stopping.Signals = e.Signals()
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
