package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// jobPrefix begins the name of the socket, in the abstract namespace, at which a job's own
// coordinator serves this user's and root's clients. The name ends with the job's ID.
func jobPrefix() string { return fmt.Sprintf("@golaunch-job-%d-", os.Getuid()) }

// Listen listens for clients of a job, and refuses those of other users.
func Listen(job string) (net.Listener, error) {
	l, err := net.Listen("unix", fmt.Sprintf("%s%d-%s", jobPrefix(), os.Getpid(), label(job)))
	if err != nil {
		return nil, fmt.Errorf("cannot listen for commands about job %s: %w", job, err)
	}
	return jobListener{l}, nil
}

type jobListener struct{ net.Listener }

// Accept admits only clients that the kernel knows as this user's or root's.
func (l jobListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := safefile.Peer(conn.(*net.UnixConn))
		if err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Getuid()) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// maxLabel bounds the part of a socket's name that stands for an ID, because the whole name has at
// most 108 bytes (unix(7)).
const maxLabel = 64

// label returns the text that stands for an ID in a socket's name. For a long ID the text begins
// with a dash, with which no ID begins.
func label(job string) string {
	if len(job) <= maxLabel {
		return job
	}
	sum := sha256.Sum256([]byte(job))
	return "-" + hex.EncodeToString(sum[:16])
}

// Jobs are the IDs of this user's jobs with a socket on this machine, sorted, without very long
// IDs. Any user can make a socket with such a name, so Jobs checks the owner of each. Jobs fails
// only if it cannot read /proc/net/unix.
func Jobs(ctx context.Context) ([]string, error) {
	names, err := jobSockets()
	var jobs []string
	for _, name := range names {
		if job := labelOf(name); !strings.HasPrefix(job, "-") && !slices.Contains(jobs, job) {
			if conn, err := dialAt(ctx, name); err == nil {
				jobs = append(jobs, job)
				_ = conn.Close()
			}
		}
	}
	slices.Sort(jobs)
	return jobs, err
}

func jobSockets() (names []string, err error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("cannot list the jobs on this machine: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		// The fields are Num, RefCount, Protocol, Flags, Type, St, Inode and Path. A socket that
		// listens has the flag __SO_ACCEPTCON (net/unix/af_unix.c).
		if len(fields) == 8 && fields[3] == "00010000" && strings.HasPrefix(fields[7], jobPrefix()) {
			names = append(names, fields[7])
		}
	}
	slices.Sort(names)
	return names, nil
}

// labelOf returns the label in a socket's name, which follows the pid.
func labelOf(name string) string {
	_, job, _ := strings.Cut(strings.TrimPrefix(name, jobPrefix()), "-")
	return job
}

// ErrNoJob says that a job has no socket on this machine.
var ErrNoJob = errors.New("no such job on this machine")

// Dial connects to the coordinator of this user's job on this machine. If several jobs have the ID,
// it connects to one of them.
func Dial(ctx context.Context, job string) (net.Conn, error) {
	all, err := jobSockets()
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if labelOf(name) == label(job) {
			if conn, err := dialAt(ctx, name); err == nil {
				return conn, nil
			}
		}
	}
	return nil, fmt.Errorf("job %s: %w", job, ErrNoJob)
}

// dialLimit bounds the wait at one socket: another user may hold it and never answer.
const dialLimit = time.Second

func dialAt(ctx context.Context, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := ours(conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
