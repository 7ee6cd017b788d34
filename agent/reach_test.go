package agent

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
)

// TestReachAnswers tries a served store, the port reserved for rank 0, and a port without a
// listener.
func TestReachAnswers(t *testing.T) {
	for _, rank0 := range []bool{false, true} {
		w := obeying(t, "exit 0")
		s := w.jobs["test"]
		s.work.Task.Rank0Store = rank0
		port := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true}).Port
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
			w.living.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second * 9 / 10):
			t.Fatal("the end of the job waits for an answer")
		}
		if text := w.journal.String(); strings.Contains(text, `"seq":100`) || strings.Contains(text, `"seq":103`) {
			t.Errorf("an answer to a question that does not matter any more:\n%s", text)
		}
	}
}

// TestRank0CanBind checks that, after earlier connections to the port, rank 0 can bind the port as
// Python does: without SO_REUSEADDR.
func TestRank0CanBind(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.jobs["test"]
	s.work.Task.Rank0Store = true
	port := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true}).Port
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
	w.order(startOf(0))
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

// TestAKeptPortIsLetGo checks that a port is released at the end of its job.
func TestAKeptPortIsLetGo(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.jobs["test"]
	s.work.Task.Rank0Store = true
	port := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true}).Port
	s.kill()
	w.living.Wait()
	if err := take(port); err != nil {
		t.Errorf("the port outlives the job: %v", err)
	}
}
