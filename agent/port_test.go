package agent

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/internal/core/job"
)

// TestAFreePort checks that rank 0 can bind a port as soon as the port is released.
func TestAFreePort(t *testing.T) {
	s := obeying(t, "exit 0").jobs["test"]
	s.work.Task.Rank0Store = true
	for attempt, addr := range []string{"127.0.0.1", "::1"} {
		got := s.stores.Of(0, false).Answer(job.Prepare{Attempt: attempt})
		if got.Err != "" {
			t.Fatal(got.Err)
		}
		port := got.Port
		if port < masterport.Low.First || port > masterport.Low.Last {
			t.Errorf("port %d is not in %v", port, masterport.Low)
		}
		s.stores.Of(0, false).Release()
		l, err := net.Listen("tcp", net.JoinHostPort(addr, fmt.Sprint(port)))
		if err != nil {
			t.Fatalf("the port was free a moment ago: %v", err)
		}
		l.Close()
	}
}

// TestPortsOfARange checks that the store, which every node reaches, or rank 0 gets a port of the
// job's range. A range in use is reported.
func TestPortsOfARange(t *testing.T) {
	for _, rank0 := range []bool{false, true} {
		s := obeying(t, "exit 0").jobs["test"]
		port, l := 19100, net.Listener(nil) // the kernel gives none of these to other programs
		for ; l == nil && port < 19200; port++ {
			l, _ = net.Listen("tcp", fmt.Sprint(":", port)) // after an error, try the next port
		}
		if port--; l == nil {
			t.Fatal("no port of 19100:19199 is free")
		}
		defer l.Close()
		s.work.Task.Rank0Store, s.work.Task.Ports = rank0, fmt.Sprintf("%d:%d", port, port)
		question, want := job.Prepare{Node: "n1", Fresh: true}, fmt.Sprintf("the only port of %d:%d (--port-range) is in use at ", port, port)
		if got := s.stores.Of(0, false).Answer(question); !strings.HasPrefix(got.Err, want) {
			t.Errorf("%+v, want %q", got, want)
		}
		l.Close()
		if got := s.stores.Of(0, false).Answer(question); got.Port != port || got.Err != "" {
			t.Errorf("%+v, want port %d", got, port)
		}
	}
}

// TestAPortInUse takes a port on one address of each family; rank 0 will listen on all of them.
func TestAPortInUse(t *testing.T) {
	s := obeying(t, "exit 0").jobs["test"]
	s.work.Task.Rank0Store = true
	for attempt, addr := range []string{"127.0.0.1", "::1", "0.0.0.0"} {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		s.work.Task.MasterPort = port
		got := s.stores.Of(0, false).Answer(job.Prepare{Attempt: attempt})
		want := fmt.Sprintf("port %d is in use by pid %d (agent.test)", port, os.Getpid())
		if !strings.Contains(got.Err, want) {
			t.Errorf("a port held on %s: %+v, want %q", addr, got, want)
		}
	}
}

func TestPrepareAnswersTheQuestion(t *testing.T) {
	for _, rank0 := range []bool{false, true} {
		w := obeying(t, "exit 0")
		s := w.jobs["test"]
		s.work.Task.Rank0Store = rank0
		question := job.Prepare{Node: "n1", Unit: 3, Attempt: 4}
		got := s.stores.Of(0, false).Answer(question)
		if got.Node != "n1" || got.Unit != 3 || got.Attempt != 4 || got.Port == 0 || got.Err != "" {
			t.Errorf("%+v", got)
		}
		if again := s.stores.Of(0, false).Answer(question); again != got {
			t.Errorf("%+v, and asked again %+v", got, again)
		}
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s.work.Task.MasterPort = l.Addr().(*net.TCPAddr).Port
		if got := s.stores.Of(0, false).Answer(job.Prepare{Node: "n1", Fresh: true}); !strings.Contains(got.Err, "in use") {
			t.Errorf("%+v, want the port to be in use", got)
		}
	}
}
