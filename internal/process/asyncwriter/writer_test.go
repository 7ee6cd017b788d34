package asyncwriter

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNoOneListens: no function can write for an hour. Callers never wait, excess calls are
// counted, and the others run in order.
func TestNoOneListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []int
		missed := 0
		s := New(func(n int) { missed += n })
		s.Say(func() { time.Sleep(time.Hour) })
		synctest.Wait()
		before := time.Now()
		for i := range Limit + 3 {
			s.Say(func() { said = append(said, i) })
		}
		if s.Finish(Patience) || time.Since(before) != Patience {
			t.Errorf("the end waits for %v", time.Since(before))
		}
		if !s.Finish(2 * time.Hour) {
			t.Error("everything was written, but Wait did not see the end")
		}
		if len(said) != Limit || missed != 3 {
			t.Fatalf("%d are written, %d are missed", len(said), missed)
		}
		for i, n := range said {
			if i != n {
				t.Fatalf("%d is written instead of %d", n, i)
			}
		}
	})
}

// TestAfterASilence: after a silence, functions run again, without a wait.
func TestAfterASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		said := 0
		for want := 1; want <= 3; want++ {
			s.Say(func() { said++ })
			if !s.Finish(Patience) || said != want {
				t.Errorf("%d are written, want %d", said, want)
			}
		}
	})
}
