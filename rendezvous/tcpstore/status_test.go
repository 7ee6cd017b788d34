package tcpstore

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// eventually waits for changes until the status is as wanted.
func eventually(t *testing.T, s *Store, wanted func(Status) bool) Status {
	t.Helper()
	deadline := time.After(patience)
	for {
		st := s.Status()
		if wanted(st) {
			return st
		}
		select {
		case <-s.Changes():
		case <-deadline:
			t.Fatalf("the status is %+v, and no change was signalled", st)
		}
	}
}

func TestStatus(t *testing.T) {
	s := serveHere(t, Options{})
	old := bare(t, s) // torch 1.13 makes a connection that sends nothing
	st := eventually(t, s, func(st Status) bool { return len(st.Clients) == 1 })
	if got := st.Clients[0]; got.Spoke || got.PID != 0 || got.Peer != addrPort(old.LocalAddr()) {
		t.Errorf("a silent client is shown as %+v", got)
	}
	old.Close()
	eventually(t, s, func(st Status) bool { return len(st.Clients) == 0 })

	c := dialHere(t, s)
	var keys []string
	for i := range maxShown + 2 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	released := make(chan error, 1)
	began := time.Now()
	go func() { released <- c.Wait(t.Context(), keys...) }()
	waits := func(missing int) func(Status) bool {
		return func(st Status) bool { return len(st.Clients) > 0 && st.Clients[0].Missing == missing }
	}
	got := eventually(t, s, waits(len(keys))).Clients[0]
	if !got.Spoke || got.PID != os.Getpid() || got.Peer != addrPort(c.conn.LocalAddr()) || got.Since.Before(began) ||
		len(got.Waiting) != maxShown || got.Waiting[0] != "key0" {
		t.Errorf("a client that waits is shown as %+v", got)
	}
	setter := bare(t, s)
	for i, key := range keys {
		exchange(t, setter, false, "SET", append([][]byte{hello, nil}[min(i, 1)], setting(key, nil)...), nil)
	}
	ok(t, <-released)
	eventually(t, s, func(st Status) bool {
		return len(st.Clients) == 2 && st.Clients[0].Missing+st.Clients[1].Missing == 0 && st.Keys == len(keys)
	})

	s.Close()
	for range s.Changes() { // the loop ends with the store
	}
	if st := s.Status(); st.Keys != 0 || st.Clients != nil {
		t.Errorf("a closed store has %+v", st)
	}
}
