// Package discovery finds the coordinators that this user runs on this machine.
package discovery

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// localName is the name of a socket in Linux's abstract namespace (unix(7)). A coordinator tells
// its address to programs that connect to this socket. The socket leaves no file behind, and other
// machines and containers cannot see it.
func localName() string { return fmt.Sprintf("@golaunch-coordinator-%d", os.Getuid()) }

// Tell announces to processes of this machine where a coordinator listens and which protocol it
// uses, until the caller closes the returned value. The error is syscall.EADDRINUSE if another
// process has the socket.
func Tell(at string) (io.Closer, error) {
	l, err := net.Listen("unix", localName())
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(localLimit))
			_, _ = fmt.Fprintln(conn, at, wire.Protocol) // an error means that the reader has gone
			_ = conn.Close()
		}
	}()
	return l, nil
}

// localLimit bounds the question for a coordinator on this machine.
const localLimit = 5 * time.Second

// Find finds this user's coordinator on this machine. It returns "" if there is none. It also
// returns "" if a scheduler started this process on each of several nodes, because the nodes then
// run one job together. An error says why golaunch cannot use the coordinator.
func Find(ctx context.Context) (at string, err error) {
	if p, err := schedenv.Find(schedenv.Here()); err == nil && p != nil && p.Each && p.Nodes != 1 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, localLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", localName())
	if err != nil {
		return "", nil
	}
	defer conn.Close()
	if err := ours(conn.(*net.UnixConn)); err != nil {
		return "", err
	}
	limit, _ := ctx.Deadline()
	if err := conn.SetDeadline(limit); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 4096))
	if err == nil && len(text) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("the coordinator on this machine does not say where it listens: %w", err)
	}
	var speaks int
	if _, err := fmt.Sscan(string(text), &at, &speaks); err != nil || speaks != wire.Protocol {
		return "", fmt.Errorf("the coordinator on this machine is of another version of golaunch, which this one does not understand: %q",
			strings.TrimSpace(string(text)))
	}
	return at, nil
}

// ours refuses a socket that another user holds under this user's name.
func ours(conn *net.UnixConn) error {
	peer, err := safefile.Peer(conn)
	if err != nil {
		return fmt.Errorf("cannot see who runs the coordinator on this machine: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("uid %d (pid %d) passes itself off as the coordinator of uid %d on this machine",
			peer.Uid, peer.Pid, os.Getuid())
	}
	return nil
}
