package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/placement"
)

// simulatedName is argv[0] of the process that stands for a node.
const simulatedName = "golaunch-node"

// The files that a simulated node is born with.
const (
	streamFD = helper.First + iota // its connection to the coordinator
	orderFD                        // its simulation, as JSON
)

// simulation is what such a process must know.
type simulation struct {
	Job  Job
	Node placement.Node
	// Run is as in here.
	Run string
}

func init() {
	if helper.Is(simulatedName) {
		os.Exit(simulated())
	}
}

// simulate runs the coordinator here and one process for each node. A node's connection is a socket pair, which no other process
// can reach: it needs neither a port nor a secret.
func (h *here) simulate(ctx context.Context) (Result, error) {
	nodes := h.job.pool()
	var machine placement.Node
	h.job.Health.examine(ctx, &machine, false, nil, health.Here(h.job.Output.LogDir))
	l := newOffers(nodes)
	return h.afar(ctx, l, nil, func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx)
		for i := range nodes {
			node := h.job.declared(i)
			node.Labels = machine.Labels
			all.Go(func() error { return h.simulateNode(ctx, l, node) })
		}
		return all.Wait()
	})
}

// simulateNode runs the process of one node until it ends, which it does by itself when the job has, or when its connection breaks.
// The error says that it could not be started; if it fails later, that is a fault as any machine may have.
func (h *here) simulateNode(ctx context.Context, l offers, node placement.Node) error {
	proof, err := helper.File()
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", node.Name, err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("cannot connect %s: %w", node.Name, err)
	}
	order, orders, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot instruct %s: %w", node.Name, err), ours.Close(), theirs.Close())
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args[0] = simulatedName
	cmd.Cancel, cmd.WaitDelay = ours.Close, endLimit
	// A group of its own: ^C on the terminal is the coordinator's to hear.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles, cmd.Env = []*os.File{proof, theirs, order}, helper.Env()
	if h.job.Ranks.Stdin {
		cmd.Stdin = os.Stdin
	}
	output, err := h.relay(cmd)
	if err == nil {
		err = cmd.Start()
	}
	theirs.Close()
	order.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start %s: %w", node.Name, err), ours.Close(), orders.Close())
	}
	l.conns <- ours
	err = errors.Join(json.NewEncoder(orders).Encode(simulation{h.job, node, h.run}), orders.Close())
	err = errors.Join(err, output.Wait(), cmd.Wait())
	if err != nil && ctx.Err() == nil {
		h.warn(fmt.Errorf("%s: %w", node.Name, err))
	}
	return nil
}

// endLimit is how long a node may take to end after its connection: it shows what its ranks said last for a minute at most.
const endLimit = 90 * time.Second

// relay shows what the node's process prints, which it has prefixed already.
func (h *here) relay(cmd *exec.Cmd) (*errgroup.Group, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	words, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var both errgroup.Group
	both.Go(func() error { return h.console.Relay(out, logs.Stdout) })
	both.Go(func() error { return h.console.Relay(words, logs.Stderr) })
	return &both, nil
}

// simulated is the whole life of a process that stands for a node.
func simulated() int {
	var s simulation
	if err := s.beNode(); err != nil {
		s.Job.complain(err)
		return 125
	}
	return 0
}

func (s *simulation) beNode() error {
	orders := os.NewFile(orderFD, "orders")
	stream := os.NewFile(streamFD, "stream")
	unix.CloseOnExec(streamFD)
	if err := json.NewDecoder(io.LimitReader(orders, maxOrder)).Decode(s); err != nil {
		return fmt.Errorf("this process should have been told which node it is: %w", err)
	}
	orders.Close()
	s.Job.Stopping.Standalone = true
	conn, err := net.FileConn(stream)
	if err != nil {
		return err
	}
	stream.Close()
	s.Job.Output.Stdout, s.Job.Output.Stderr = os.Stdout, os.Stderr
	h := arrive(s.Job)
	h.run = s.Run
	h.simulated = true
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	dial := dialOnce(conn.(*net.UnixConn), func() { cancel(errGone) })
	_, err = h.agent(ctx, membership{Options: session.Options{Node: s.Node, Target: "the coordinator", Dial: dial}}, signals.NewNode(cancel))
	if h.dir != nil {
		err = errors.Join(err, h.dir.Close())
	}
	return errors.Join(err, h.console.Close())
}

// dialOnce gives out the only connection that there will ever be. Who asks for another, because no answer comes, waits for the end of that
// one: a coordinator that is slow, or stopped for a while, is not gone.
func dialOnce(conn *net.UnixConn, gone func()) func(context.Context) (net.Conn, error) {
	only := &onlyConn{UnixConn: conn, ended: make(chan struct{})}
	var used atomic.Bool
	return func(ctx context.Context) (net.Conn, error) {
		if !used.Swap(true) {
			return only, nil
		}
		select {
		case <-only.ended:
			gone()
			return nil, errGone
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// onlyConn knows when its other end is closed.
type onlyConn struct {
	*net.UnixConn
	ended chan struct{}
	once  sync.Once
}

func (c *onlyConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// maxOrder bounds a simulation, in bytes: a command line has 2 MiB at most (execve(2)), which JSON may write longer.
const maxOrder = 16 << 20

// errGone ends a simulated node: the socket pair that made it part of the job cannot be made again.
var errGone = errors.New("the process that runs the job is gone")

// offers is a listener that accepts the connections it is given, n at most.
type offers struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newOffers(n int) offers { return offers{make(chan net.Conn, n), make(chan struct{})} }

func (o offers) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

// Close is called once, by the server.
func (o offers) Close() error {
	close(o.closed)
	return nil
}

// Addr says that no other machine can reach it.
func (o offers) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	near, far := os.NewFile(uintptr(fds[0]), "coordinator"), os.NewFile(uintptr(fds[1]), "node")
	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return conn, far, nil
}
