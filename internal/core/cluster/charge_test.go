package cluster

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
)

// TestForgottenCharges: a user's charges are the same before and after the user's job is forgotten,
// also if the ledger has no room for the user. Counters of both names would count the time twice.
func TestForgottenCharges(t *testing.T) {
	s := New()
	for i := range 5000 {
		s.spent.Fold(fmt.Sprint("early", i), map[string]charge.Time{"toy": {Nodes: 1, GPUs: 8}})
	}
	for i, user := range []string{"early0", "late"} {
		e := &entry{seq: i, done: true, charged: map[string]charge.Time{"toy": {Nodes: 10, GPUs: 80}}}
		e.Job, e.User = job.Spec{ID: user}, user
		s.jobs[user] = e
	}
	jobs, before := s.Spent(time.Time{})
	if len(jobs) != 2 || jobs["late"]["toy"].Nodes != 10 || before.Users[charge.Pair{User: "early0", Kind: "toy"}].Nodes != 11 {
		t.Errorf("jobs are charged for %v", jobs)
	}
	for id := range jobs {
		s.Forget(id)
		if _, after := s.Spent(time.Time{}); !maps.Equal(before.Users, after.Users) {
			t.Errorf("the charges change when job %s is forgotten", id)
		}
	}
}
