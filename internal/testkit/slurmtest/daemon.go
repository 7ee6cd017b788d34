package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

const (
	// startLimit bounds the start of a cluster, which takes a third of a second on an idle machine.
	startLimit = time.Minute
	// killLimit bounds the end of a killed process.
	killLimit = 10 * time.Second
)

// boot starts the daemons, each as soon as its peer answers.
func (c *Cluster) boot() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startLimit)
	defer cancel()
	c.daemon(c.Head, `exec "$@"`, "munged", "--foreground", "--socket="+c.file("munge.socket"), "--key-file="+c.file("munge.key"),
		"--log-file="+c.file("munge.log"), "--pid-file="+c.file("munge.pid"), "--seed-file="+c.file("munge.seed"))
	c.await(ctx, "munged to listen", func() error {
		conn, err := net.Dial("unix", c.file("munge.socket"))
		if err == nil {
			conn.Close()
		}
		return err
	})
	c.daemon(c.Head, `exec "$@"`, "slurmctld", "-D")
	c.await(ctx, "slurmctld to answer", func() error { return c.says(ctx, "Slurmctld(primary) at head is UP", "scontrol", "ping") })
	for _, n := range c.Nodes {
		// The shell is the first process of the namespace: it reaps the processes that slurmd and
		// the jobs leave.
		c.daemon(n, `mount -t proc proc /proc && { "$@"; exit $?; }`, "slurmd", "-D")
	}
	idle := fmt.Sprintf("%d idle none", len(c.Nodes))
	c.await(ctx, "the nodes to be idle", func() error { return c.says(ctx, idle, "sinfo", "--noheader", "--format=%D %T %E") })
}

// daemon starts a daemon on a node, as the first process of a process namespace: when the daemon
// ends, at the latest with this process, the kernel ends all processes that the daemon has started.
func (c *Cluster) daemon(n nettest.Node, script string, argv ...string) {
	c.t.Helper()
	log, err := os.Create(c.file(n.Name + "-" + argv[0] + ".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.on(ctx, n, script, argv...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	ended := make(chan struct{})
	c.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the parent of Pdeathsig is a thread
		err := cmd.Run()
		log.Close()
		c.died <- fmt.Sprintf("%s on %s ended: %v", argv[0], n.Name, err)
	}()
}

// await tries until the cluster is ready for the next step; Slurm has no event for that.
func (c *Cluster) await(ctx context.Context, what string, try func() error) {
	c.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	var err error
	for {
		now := try()
		if now == nil {
			return
		}
		if ctx.Err() == nil { // otherwise the answer was cut off and means nothing
			err = now
		}
		select {
		case <-again.C:
		case died := <-c.died:
			c.t.Fatalf("waited for %s, but %s", what, died)
		case <-ctx.Done():
			c.t.Fatalf("waited %v for %s: %v", startLimit, what, err)
		}
	}
}

// says returns nil if the command prints the line.
func (c *Cluster) says(ctx context.Context, line string, argv ...string) error {
	out, err := c.on(ctx, c.Head, `exec "$@"`, argv...).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != line {
		return errors.Join(err, fmt.Errorf("%s says %q", argv[0], got))
	}
	return nil
}

// empty kills the processes that still run in a network namespace: commands of the test, and their
// children.
func (c *Cluster) empty(netns string) {
	for range 10 { // a process may fork while it is killed
		out, err := exec.Command("ip", "netns", "pids", netns).Output()
		if err != nil {
			c.t.Errorf("list the processes of %s: %v", netns, err)
			return
		}
		pids := strings.Fields(string(out))
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			if err := kill(pid); err != nil {
				c.t.Errorf("kill process %s of %s: %v", pid, netns, err)
			}
		}
	}
	c.t.Errorf("the processes of %s do not end", netns)
}

// kill ends a process and waits for its end.
func kill(pid string) error {
	id, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(id, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(killLimit.Milliseconds()))
	}
	if n == 0 && err == nil {
		return fmt.Errorf("it still runs after %v", killLimit)
	}
	return err
}
