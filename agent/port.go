package agent

import (
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

// lowPorts are where ports are chosen that no Task.Ports says: below Linux's ephemeral range (net.ipv4.ip_local_port_range, 32768 by
// default), so that no outgoing connection takes the port between the choice and rank 0's bind.
var lowPorts = ports.Range{First: 20000, Last: 32767}

// listen takes the wanted port at a host of this node, or when that is 0, a free one of those that the job may have here.
func (s *share) listen(host string, wanted int) (net.Listener, error) {
	if wanted != 0 {
		return listen(host, wanted)
	}
	r, err := ports.Parse(s.work.Task.Ports)
	if err != nil {
		return nil, err
	}
	return r.Or(lowPorts).Listen(s.agent.reading, host)
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func listen(host string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is in use%s; choose another --master-port, or 0 for a free one", port, PortHolder(port))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on port %d: %w", port, err)
	}
	return l, nil
}

// tellsOfPort says that a text has a line about a port that could not be had: in the words of the C library, of torch, or of gRPC (JAX).
func tellsOfPort(text string, port int) bool {
	for line := range strings.Lines(text) {
		low := strings.ToLower(line)
		taken := strings.Contains(low, "already in use") || strings.Contains(low, "eaddrinuse") || strings.Contains(low, "failed to add port")
		if taken && strings.Contains(line, strconv.Itoa(port)) {
			return true
		}
	}
	return false
}

// PortHolder names the process that listens on a TCP port of this machine, as far as /proc shows it, in words that follow "in use":
// " by pid 4411 (python3)". It is empty when nothing listens there.
func PortHolder(port int) string {
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

// listener is the inode of the socket that listens on a port (proc_net_tcp(5): state 0A), or "".
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
