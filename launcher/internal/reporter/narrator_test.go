package reporter

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestNarrator(t *testing.T) {
	const failure, success = "rank 1 failed", "all exited 0"
	for _, c := range []struct {
		name string
		tell func(n *narrator)
		want []string
	}{
		{"what passes is not told", func(n *narrator) {
			n.tell("a", false)
			time.Sleep(passing / 2)
			n.tell("b", false)
			time.Sleep(passing / 2)
			n.tell(success, false)
		}, nil},
		{"a lasting state is printed once", func(n *narrator) {
			n.tell("a", false)
			time.Sleep(10 * passing)
			n.tell("b", false)
		}, []string{"a"}},
		{"news are printed at once, instead of what has passed", func(n *narrator) {
			n.tell("a", false)
			n.tell(failure, true)
			n.tell("n1 was lost", true)
			n.tell("cancelled", true)
		}, []string{"rank 1 failed", "n1 was lost", "cancelled"}},
		{"a state after news lasts too", func(n *narrator) {
			n.tell(failure, true)
			n.tell("a", false)
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
					t.Errorf("printed %q, want %q", said, c.want)
				}
			})
		})
	}
}
