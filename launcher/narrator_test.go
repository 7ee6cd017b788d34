package launcher

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

func TestNarrator(t *testing.T) {
	wait := func(reason string) Decision { return Decision{Event: job.Joined{}, Reason: reason} }
	failure := Decision{Event: job.Exited{Exit: job.Exit{Code: 1}}, Reason: "rank 1 failed"}
	success := Decision{Event: job.Exited{}, Reason: "all exited 0"}
	for _, c := range []struct {
		name string
		tell func(n *narrator)
		want []string
	}{
		{"what passes is not told", func(n *narrator) {
			n.tell(wait("a"))
			time.Sleep(passing / 2)
			n.tell(wait("b"))
			time.Sleep(passing / 2)
			n.tell(success)
		}, nil},
		{"what lasts is told once", func(n *narrator) {
			n.tell(wait("a"))
			time.Sleep(10 * passing)
			n.tell(wait("b"))
		}, []string{"a"}},
		{"news are told at once, in the place of what passed", func(n *narrator) {
			n.tell(wait("a"))
			n.tell(failure)
			n.tell(Decision{Event: job.Lost{}, Reason: "n1 was lost"})
			n.tell(Decision{Event: job.Cancel{}, Reason: "cancelled"})
		}, []string{"rank 1 failed", "n1 was lost", "cancelled"}},
		{"a state after news lasts too", func(n *narrator) {
			n.tell(failure)
			n.tell(wait("a"))
			time.Sleep(2 * passing)
		}, []string{"rank 1 failed", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				n := narrator{say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
				c.tell(&n)
				synctest.Wait()
				n.end()
				time.Sleep(10 * passing)
				if !slices.Equal(said, c.want) {
					t.Errorf("said %q, want %q", said, c.want)
				}
			})
		})
	}
}
