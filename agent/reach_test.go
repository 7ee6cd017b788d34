package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
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

// TestReachingAPort has all ways in which a network says no.
func TestReachingAPort(t *testing.T) {
	nodes := nettest.Nodes(t, "10.77.0.2", "10.77.0.3")
	master, other := nodes[0], nodes[1]
	l, addr := listenOn(t, master)
	reach := func(late bool) string {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var err error
		other.Do(t, func() { err = reachPort(ctx, addr, late) })
		return fmt.Sprint(err)
	}
	check := func(what string, late bool, want string) {
		t.Helper()
		got := reach(late)
		for range 20 { // half a second is not enough for a machine with much to do
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
	check("nobody listens", false, "connection refused")
	check("nobody listens any more", true, "<nil>")
}

// TestReachingAPortThatComesLate goes on after a refusal.
func TestReachingAPortThatComesLate(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", nettest.Port(t))
	reached := make(chan error, 1)
	go func() { reached <- reachPort(t.Context(), addr, false) }()
	select {
	case err := <-reached:
		t.Fatalf("%v without a listener", err)
	case <-time.After(10 * reachAgainMin):
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

// TestReachAnswers has the store that is served, the port that is kept for rank 0, and one where nobody listens.
func TestReachAnswers(t *testing.T) {
	for _, rank0 := range []bool{false, true} {
		w := obeying(t, "exit 0")
		s := w.shares["test"]
		s.work.Task.Rank0Store = rank0
		port := s.answer(job.Prepare{Fresh: true}).Port
		for seq := range 20 {
			w.order(job.Reach{Node: "n1", Seq: seq, Addr: "127.0.0.1", Port: port})
			w.journal.await(t, fmt.Sprintf(`"seq":%d,"err":""`, seq))
		}
		w.order(job.Reach{Node: "n1", Seq: 100, Addr: "127.0.0.1", Port: 1})
		w.order(job.Reach{Node: "n1", Seq: 101, Addr: "127.0.0.1", Port: 1, Late: true})
		if rank0 {
			w.journal.await(t, `"seq":101,"err":""`)
		}
		w.order(job.Reach{Node: "n1", Seq: 102, Addr: "127.0.0.1", Port: port})
		w.journal.await(t, `"seq":102,"err":""`)
		w.order(job.Reach{Node: "n1", Seq: 103, Addr: "127.0.0.1", Port: 1})
		ended := make(chan struct{})
		go func() {
			s.kill()
			w.done.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(patienceToReach * 9 / 10):
			t.Fatal("the end of the job waits for an answer")
		}
		if text := w.journal.String(); strings.Contains(text, `"seq":100`) || strings.Contains(text, `"seq":103`) {
			t.Errorf("an answer to a question that does not matter any more:\n%s", text)
		}
	}
}

// TestRank0CanBind has connections that came to the port before, and a bind as Python's is: without SO_REUSEADDR.
func TestRank0CanBind(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.shares["test"]
	s.work.Task.Rank0Store = true
	port := s.answer(job.Prepare{Fresh: true}).Port
	var open []net.Conn
	for i := range 100 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		switch {
		case errors.Is(err, unix.ECONNRESET):
		case err != nil:
			t.Fatal(err)
		case i%2 == 0:
			c.Close()
		default:
			open = append(open, c)
		}
	}
	if err := take(port); err == nil {
		t.Error("the port was free while it was kept")
	}
	w.order(attempt(0))
	if err := take(port); err != nil {
		t.Errorf("rank 0 cannot bind: %v", err)
	}
	for _, c := range open {
		c.Close()
	}
	w.quiet()
}

func take(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Port: port})
}

// TestAKeptPortIsLetGo ends with its job.
func TestAKeptPortIsLetGo(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.shares["test"]
	s.work.Task.Rank0Store = true
	port := s.answer(job.Prepare{Fresh: true}).Port
	s.kill()
	w.done.Wait()
	if err := take(port); err != nil {
		t.Errorf("the port outlives the job: %v", err)
	}
}
