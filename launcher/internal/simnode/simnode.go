// Package simnode runs nodes of a simulated job, each in a process of its own on this machine.
//
// A socket pair connects each node to the coordinator. No other process can reach the pair, so it
// needs neither a port nor a secret.
package simnode

import (
	"bytes"
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

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/host/helper/spawn"
)

// process is argv[0] of a node's process.
const process = "golaunch-node"

// The files that a node's process inherits.
const (
	streamFD = helper.First + iota // the process's connection to the coordinator
	orderFD                        // the process's order, as JSON
)

const (
	// MaxOrder bounds an order, in bytes. An order contains a command line, which has at most 2 MiB
	// (execve(2)) but is longer as JSON.
	MaxOrder = 16 << 20
	// endLimit is how long a node's process may take to end after its connection has ended. It is
	// longer than the minute for which the process may show the last output of its ranks.
	endLimit = 90 * time.Second
)

// Is reports whether this process is a simulated node. Only an init function may call it.
func Is() bool { return helper.Is(process) }

// Nodes starts nodes, and is the listener that accepts their connections.
type Nodes struct {
	conns  chan net.Conn
	closed chan struct{}
	// Stdin lets the nodes read this process's standard input.
	Stdin bool
	// Relay shows the output of a node's process.
	Relay func(*exec.Cmd) (*errgroup.Group, error)
	Warn  func(error)
}

// New returns a listener for at most n nodes.
func New(n int) *Nodes {
	return &Nodes{conns: make(chan net.Conn, n), closed: make(chan struct{})}
}

// Run runs the process of one node until the process ends: by itself after the job, or when its
// connection breaks. Run returns an error only if it cannot start the process. If the process fails
// later, that is like the loss of a machine.
func (n *Nodes) Run(ctx context.Context, name string, order []byte) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("cannot connect %s: %w", name, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot instruct %s: %w", name, err), ours.Close(), theirs.Close())
	}
	cmd, err := spawn.Command(ctx, process, theirs, read)
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start %s: %w", name, err), ours.Close(), theirs.Close(), read.Close(), write.Close())
	}
	cmd.Cancel, cmd.WaitDelay = ours.Close, endLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a ^C on the terminal reaches only the coordinator
	if n.Stdin {
		cmd.Stdin = os.Stdin
	}
	output, err := n.Relay(cmd)
	if err == nil {
		err = cmd.Start()
	}
	theirs.Close()
	read.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start %s: %w", name, err), ours.Close(), write.Close())
	}
	n.conns <- ours
	_, err = io.Copy(write, bytes.NewReader(order))
	err = errors.Join(err, write.Close(), output.Wait(), cmd.Wait())
	if err != nil && ctx.Err() == nil {
		n.Warn(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// Accept returns the connection of a node.
func (n *Nodes) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. It must be called only once.
func (n *Nodes) Close() error {
	close(n.closed)
	return nil
}

// Addr returns an address that shows that no other machine can reach the listener.
func (n *Nodes) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

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

// errGone is the reason why a node ends when its socket pair is closed, since the node cannot get
// another one.
var errGone = errors.New("the process that runs the job is gone")

// Accept reads this process's order, as JSON, and returns how it dials the coordinator. It calls
// cancel when the coordinator is gone.
func Accept(order any, cancel context.CancelCauseFunc) (dial func(context.Context) (net.Conn, error), err error) {
	orders, stream := os.NewFile(orderFD, "order"), os.NewFile(streamFD, "stream")
	unix.CloseOnExec(streamFD)
	if err := json.NewDecoder(io.LimitReader(orders, MaxOrder)).Decode(order); err != nil {
		return nil, fmt.Errorf("this process should have been told which node it is: %w", err)
	}
	orders.Close()
	conn, err := net.FileConn(stream)
	if err != nil {
		return nil, err
	}
	stream.Close()
	return dialOnce(conn.(*net.UnixConn), func() { cancel(errGone) }), nil
}

// dialOnce returns a function whose first call returns conn, the only connection that the node will
// ever have. The agent calls the function again if the coordinator does not answer. That call waits
// until conn ends, because a coordinator that is slow, or stopped for a while, is not gone.
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

// onlyConn closes ended when its other end is closed.
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
