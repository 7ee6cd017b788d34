package rendezvous

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/cohorts"
)

// asks reports a replica of a group. A call of 0 is a heartbeat.
func (a *agent) asks(group, attempt int, call int64) {
	name := string(rune('a'+group)) + string(rune('0'+attempt))
	a.Report("j1", wire.Replica{Unit: group, Attempt: attempt, Request: lighthouse.Request{
		Replica: lighthouse.Replica{ID: name, Group: group}, Call: call, Member: []byte(name),
	}})
}

// heard checks the newest cohort that a node received: its ID, its members, the call that it
// answers, and how long after the time begun it arrived.
func (a *agent) heard(t *testing.T, id int64, call int64, members string, least, most time.Duration, begun time.Time) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cohorts) == 0 {
		t.Fatalf("%s was told of no cohort, want %d of %s: %q %q", a.Node.Name, id, members, a.w.decided(), a.w.warnings)
	}
	c := a.cohorts[len(a.cohorts)-1]
	var got []string
	for _, m := range c.Members {
		got = append(got, string(m))
	}
	took := c.at.Sub(begun)
	if c.ID != id || c.Call != call || strings.Join(got, " ") != members || took < least || took > most {
		t.Errorf("%s was told of cohort %d of %v for call %d after %v; want %d of %s for call %d after %v to %v", a.Node.Name, c.ID, got, c.Call, took, id, members, call, least, most)
	}
}

// TestCohorts has two replica groups that ask the coordinator for cohorts.
func TestCohorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := one(2)
		s.Job.Restart, s.Job.Groups, s.Job.MinGroups = job.RestartGroup, 2, 1
		w := newWorldOf(t.Context(), t, Config{}, s)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		moment := 10 * time.Millisecond

		a.asks(0, 0, 0) // otherwise the first group alone would be a cohort
		b.asks(1, 0, 0)
		synctest.Wait()
		begun := time.Now()
		a.asks(0, 0, 1)
		b.asks(1, 0, 1)
		synctest.Wait()
		a.heard(t, 1, 1, "a0 b0", 0, moment, begun)
		b.heard(t, 1, 1, "a0 b0", 0, moment, begun)

		// The coordinator waits for a member that is alive but does not ask, because one of two
		// members is no majority. People are told so.
		a.asks(0, 0, 2)
		for range 12 {
			a.asks(0, 0, 0)
			b.asks(1, 0, 0)
			time.Sleep(time.Second)
		}
		a.heard(t, 1, 1, "a0 b0", 0, moment, begun)
		lacks := func(text string) bool { return strings.Contains(text, "no quorum") }
		if !slices.ContainsFunc(w.decided(), lacks) {
			t.Errorf("no decision says that there is no quorum: %q", w.decided())
		}

		// Once the member is silent, the coordinator waits for it only for as long as its last
		// heartbeat counts.
		begun = time.Now().Add(-time.Second) // the time of its last heartbeat
		for range 4 {
			a.asks(0, 0, 0)
			time.Sleep(cohorts.BeatTimeout / 2)
		}
		a.heard(t, 2, 2, "a0", cohorts.BeatTimeout, cohorts.BeatTimeout+2*cohorts.DecideEvery, begun)

		// The member comes back, and forms a cohort with the next ID.
		a.asks(0, 0, 0)
		b.asks(1, 0, 0)
		synctest.Wait()
		begun = time.Now()
		b.asks(1, 0, 2)
		synctest.Wait()
		a.asks(0, 0, 3)
		synctest.Wait()
		a.heard(t, 3, 3, "a0 b0", 0, moment, begun)
		b.heard(t, 3, 2, "a0 b0", 0, moment, begun)

		// The coordinator does not wait for a member whose rank has died. The next attempt of the
		// member's group joins.
		a.asks(0, 0, 4)
		synctest.Wait()
		begun = time.Now()
		b.Report("j1", job.Exited{Unit: 1, Rank: 1, Exit: report.Exit{Code: 7}, At: begun})
		synctest.Wait()
		a.heard(t, 4, 4, "a0", 0, cohorts.DecideEvery, begun)
		time.Sleep(time.Minute)
		a.asks(0, 0, 0)
		b.asks(1, 1, 0)
		synctest.Wait()
		begun = time.Now()
		b.asks(1, 1, 1)
		synctest.Wait()
		a.asks(0, 0, 5)
		synctest.Wait()
		a.heard(t, 5, 5, "a0 b1", 0, moment, begun)
		b.asks(1, 0, 9) // a report of the dead start
		synctest.Wait()
		b.heard(t, 5, 1, "a0 b1", 0, moment, begun)
	})
}
