package jobstate

import "github.com/golaunch/golaunch/internal/core/job"

import "testing"

// TestLaggards finds the ranks that do something else than most ranks, even if most wait in
// different functions of the kernel.
func TestLaggards(t *testing.T) {
	for _, c := range []struct {
		does []string
		late int
		want string
	}{
		{[]string{"asleep (do_wait)", "asleep (do_wait)", "asleep (do_wait)", "asleep (futex_do_wait)"}, 3, "it is asleep (futex_do_wait), and 3 others are asleep (do_wait)"},
		{[]string{"asleep (do_wait)", "asleep (futex_do_wait)", "stopped", "asleep (poll)"}, 2, "it is stopped, and 3 others are asleep"},
		{[]string{"asleep (do_wait)", "asleep (futex_do_wait)", "asleep (poll)"}, -1, ""},
		{[]string{"running", "stopped"}, -1, ""},
		{[]string{"stopped"}, 0, "it is stopped"},
	} {
		all := still(c.does)
		late, why := new(State).laggards(all, nil)
		if why != c.want || len(late) != min(1, c.late+1) || c.late >= 0 && !late[c.late] {
			t.Errorf("%q: %v, %q; want %d, %q", c.does, late, why, c.late, c.want)
		}
	}
}

func still(does []string) (all []job.Still) {
	for i, d := range does {
		all = append(all, job.Still{Rank: i, Step: -1, Does: d})
	}
	return all
}

// TestStanding checks the text about ranks when none of them is behind.
func TestStanding(t *testing.T) {
	for _, c := range []struct {
		does []string
		want string
	}{
		{[]string{"running", "running"}, ", all are running"},
		{[]string{"between sections", "in section step, which may take 581ms"}, ": rank 0 is between sections; rank 1 is in section step, which may take 581ms"},
		{[]string{"asleep", "stopped", "stopped", "asleep"}, ": 2 ranks are asleep; 2 ranks are stopped"},
		{[]string{"a", "b", "c", "d"}, ""},
	} {
		if got := standing(still(c.does)); got != c.want {
			t.Errorf("%q: %q; want %q", c.does, got, c.want)
		}
	}
}
