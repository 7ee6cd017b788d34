package rendezvous

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// submitEvery is how long the first of several clients waits before it submits another job. It
// waits longer with the race detector.
var submitEvery = lease / 1000

// TestSubmissionsWhileCoordinatorsCome checks that each job is accepted exactly once while
// coordinators come and go. One coordinator leaves in order, the next is killed, and so on.
func TestSubmissionsWhileCoordinatorsCome(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		var submitters sync.WaitGroup
		stop := make(chan struct{})
		submitted := make([]int, 4)
		for i := range submitted {
			c := h.client()
			submitters.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(submitEvery * time.Duration(i+1)):
					}
					id := fmt.Sprintf("j%d-%d", i, submitted[i])
					w, err := c.Submit(t.Context(), detached(task(id, 1, 1)))
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
					submitted[i]++
					w.Close()
				}
			})
		}
		for round := range 6 {
			addr, _ := h.lead()
			time.Sleep(lease / 10)
			if round%2 == 0 {
				h.end(addr)
			} else {
				h.kill(addr)
			}
			h.lead()
			h.start(addr)
		}
		close(stop)
		submitters.Wait()
		total := 0
		for _, n := range submitted {
			total += n
		}
		if jobs := len(h.client().status().Jobs); jobs != total || total == 0 {
			t.Errorf("%d jobs of %d that were submitted", jobs, total)
		}
	})
}

// TestASubmissionWithUnknownResult submits a job to a coordinator that ends before it can store the
// entry.
func TestASubmissionWithUnknownResult(t *testing.T) {
	for name, lose := range map[string]func(*headed, string){"ended": (*headed).end, "killed": (*headed).kill} {
		t.Run(name, func(t *testing.T) {
			several(t, func(t *testing.T, h *headed) {
				h.startAll()
				addr, _ := h.lead()
				c := h.client()
				if _, err := c.Status(t.Context()); err != nil { // so that the client looks for the leader from now on
					t.Fatal(err)
				}
				h.part(hostOf(addr), "user")
				accepted := make(chan error, 1)
				go func() {
					w, err := c.Submit(t.Context(), detached(task("a", 1, 1)))
					if err == nil {
						w.Close()
					}
					accepted <- err
				}()
				synctest.Wait()
				lose(h, addr)
				h.part()
				if err := <-accepted; err != nil {
					t.Error(err)
				}
				want(t, fmt.Sprint(len(h.client().status().Jobs)), "1")
			})
		})
	}
}

// TestAJobIsSubmittedAgain submits a job again: first from a client that did not get the answer,
// then from another client.
func TestAJobIsSubmittedAgain(t *testing.T) {
	s := detached(task("a", 1, 1))
	s.Key = "a key"
	host(t, func(t *testing.T, h *hosted) {
		ask := func(key string) error {
			s.Key = key
			_, err := clientService{c: h.c}.submit(s, nil)
			return err
		}
		if err := ask("a key"); err != nil {
			t.Fatal(err)
		}
		if err := ask("a key"); err != nil {
			t.Errorf("the same client: %v", err)
		}
		for _, key := range []string{"another key", ""} {
			if err := ask(key); err == nil {
				t.Errorf("key %q: there are two jobs of one id", key)
			}
		}
	})
}
