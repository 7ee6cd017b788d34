package discovery

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// TestJobSockets checks that Jobs finds jobs with short and long IDs, and nothing else.
func TestJobSockets(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, job := range []string{"sockets-1", long} {
		l, err := Listen(job)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_ = conn.Close() // the test only checks that there is a socket
			}
		}()
		conn, err := Dial(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close() // likewise
	}
	jobs, err := Jobs(t.Context())
	if err != nil || !slices.Contains(jobs, "sockets-1") || slices.ContainsFunc(jobs, func(j string) bool { return strings.HasPrefix(j, "-") }) {
		t.Errorf("%q, %v", jobs, err)
	}
	if _, err := Dial(t.Context(), "sockets-2"); !errors.Is(err, ErrNoJob) {
		t.Errorf("%v", err)
	}
}

// TestForeignSocket checks that a socket of another user, with a name of this user's jobs, is
// ignored.
func TestForeignSocket(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can be another user too")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := jobPrefix() + "1-sockets-foreign"
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-c", `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0" + sys.argv[1])
s.listen()
print("listens", flush=True)
sys.stdin.read()`, name[1:])
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	stdin, out := pipetest.Start(t, cmd)
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("unix", name); err != nil {
		t.Fatal(err)
	} else {
		_ = conn.Close() // the dial showed that the socket exists
	}
	if _, err := Dial(t.Context(), "sockets-foreign"); !errors.Is(err, ErrNoJob) {
		t.Errorf("%v", err)
	}
	if jobs, err := Jobs(t.Context()); err != nil || slices.Contains(jobs, "sockets-foreign") {
		t.Errorf("%q, %v", jobs, err)
	}
}
