package rendezvous

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNodesThatMayHaveRanks checks that the job waits as long as absent nodes may still run ranks
// of the job's earlier coordinator.
func TestNodesThatMayHaveRanks(t *testing.T) {
	for name, test := range map[string]struct {
		wait time.Duration
		all  bool
	}{"all are here": {time.Second, true}, "one stays away": {lease + killTime, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldOf(t.Context(), t, Config{AllNodes: 3}, one(2))
				n1, n2 := w.join(1, forever), w.join(2, forever)
				time.Sleep(test.wait - time.Millisecond)
				if n := n1.attempts() + n2.attempts(); n > 0 {
					t.Errorf("%d nodes run ranks before that", n)
				}
				time.Sleep(time.Millisecond)
				if test.all {
					w.join(3, forever)
				}
				synctest.Wait()
				if n1.attempts() != 1 || n2.attempts() != 1 {
					t.Errorf("they do not run after that\n%s", w.decided())
				}
				w.c.Cancel(130, "enough")
				<-w.result
			})
		})
	}
}
