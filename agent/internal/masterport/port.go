// Package masterport finds, holds and reaches a job's MASTER_PORT.
package masterport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/golaunch/golaunch/internal/host/ports"
)

// Low are the ports to choose from when the job names no ports. They are below Linux's ephemeral
// range (net.ipv4.ip_local_port_range, 32768 by default), so that no outgoing connection takes the
// port before rank 0 binds it.
var Low = ports.Range{First: 20000, Last: 32767}

// Of returns a TCP listener's port.
func Of(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// Listen takes a port of this machine. Its error names the process that has the port.
func Listen(host string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is in use%s; choose another --master-port, or 0 for a free one", port, Holder(port))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on port %d: %w", port, err)
	}
	return l, nil
}

// beside is how many ports after MASTER_PORT programs take for themselves. Libraries that restart
// ranks in place serve stores of their own on rank 0's node, at MASTER_PORT+1 and +2.
const beside = 2

// Free takes a free port of a range. If possible, it takes a port beside which nothing listens.
// Otherwise this job, or another job on this machine, could find a port in use that its program
// expects to be free.
func Free(ctx context.Context, r ports.Range, host string) (net.Listener, error) {
	for range 8 {
		l, err := r.Listen(ctx, host)
		if err != nil || alone(host, Of(l)) {
			return l, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return r.Listen(ctx, host)
}

// alone reports whether nothing listens on the ports beside a port.
func alone(host string, port int) bool {
	for other := port - beside; other <= port+beside; other++ {
		if other == port {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(other)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// SaysTaken reports whether a line of text says that a port is taken, in the words of the C
// library, torch or gRPC (JAX).
func SaysTaken(text string, port int) bool {
	for line := range strings.Lines(text) {
		low := strings.ToLower(line)
		taken := strings.Contains(low, "already in use") || strings.Contains(low, "eaddrinuse") || strings.Contains(low, "failed to add port")
		if taken && strings.Contains(line, strconv.Itoa(port)) {
			return true
		}
	}
	return false
}

// Holder names the process that listens on a TCP port. The text follows "in use": " by pid 4411
// (python3)". It is empty when no process listens.
func Holder(port int) string {
	inode := listener(port)
	if inode == "" {
		return ""
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == "socket:["+inode+"]" {
			pid := strings.Split(fd, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf(" by pid %s (%s)", pid, strings.TrimSpace(string(name)))
		}
	}
	return " by a process of another user"
}

// listener returns the inode of the socket that listens on a port (proc_net_tcp(5): state 0A), or
// "".
func listener(port int) string {
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && strings.HasSuffix(f[1], local) && f[3] == "0A" {
				return f[9]
			}
		}
	}
	return ""
}
