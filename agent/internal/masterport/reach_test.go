package masterport

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

func listenOn(t *testing.T, n nettest.Node) (l net.Listener, addr string) {
	t.Helper()
	n.Do(t, func() {
		var err error
		if l, err = net.Listen("tcp", net.JoinHostPort(n.Addr.String(), "0")); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().String()
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// TestReachingAPort tries all ways in which a network refuses a connection.
func TestReachingAPort(t *testing.T) {
	nodes := nettest.Nodes(t, "10.77.0.2", "10.77.0.3")
	master, other := nodes[0], nodes[1]
	l, addr := listenOn(t, master)
	reach := func(late bool) string {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var err error
		other.Do(t, func() { err = Reach(ctx, addr, late) })
		return fmt.Sprint(err)
	}
	check := func(what string, late bool, want string) {
		t.Helper()
		got := reach(late)
		for range 20 { // half a second is not enough for a busy machine
			if got == want {
				return
			}
			got = reach(late)
		}
		t.Errorf("%s: %s, want %s", what, got, want)
	}
	check("a port that is served", false, "<nil>")
	route := func(n nettest.Node, args ...string) {
		run(t, n.Command(append([]string{"ip", "route"}, args...)...))
	}
	route(master, "add", "blackhole", other.Addr.String())
	check("silence", false, "connection timed out")
	route(master, "del", "blackhole", other.Addr.String())
	route(other, "add", "unreachable", master.Addr.String())
	check("no route", false, "no route to host")
	route(other, "del", "unreachable", master.Addr.String())
	l.Close()
	check("no listener", false, "connection refused")
	check("no listener any more", true, "<nil>")
}

// TestReachingAPortThatComesLate checks that a refused connection is tried again.
func TestReachingAPortThatComesLate(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", nettest.Port(t))
	reached := make(chan error, 1)
	go func() { reached <- Reach(t.Context(), addr, false) }()
	select {
	case err := <-reached:
		t.Fatalf("%v without a listener", err)
	case <-time.After(10 * retryMin):
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-reached; err != nil {
		t.Error(err)
	}
}
