package lighthouse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var began = time.Unix(1_700_000_000, 0)

// table is a lighthouse whose replicas are named by letters. The replicas a, b and so on are of the
// groups 0, 1 and so on.
type table struct {
	*State
	now   time.Time
	calls int64
}

func newTable(least int) *table {
	o := Options{MinReplicas: least, JoinTimeout: 10 * time.Second, HeartbeatTimeout: 5 * time.Second}
	return &table{State: New(o, 0, nil, began), now: began}
}

func replicaOf(name string) Replica { return Replica{ID: name, Group: int(name[0] - 'a')} }

// do plays events in words: "a" asks, "a!" could not commit, "a-" asks only to shrink, "a." beats,
// "a~" is gone, and "3s" passes. It returns the effect of the last event: the cohort, or why there
// is none.
func (tb *table) do(words string) (result string) {
	for word := range strings.FieldsSeq(words) {
		name, how := word[:1], word[1:]
		var ev Event
		q := Request{Replica: replicaOf(name), Call: tb.calls + 1}
		switch d, err := time.ParseDuration(word); {
		case err == nil:
			tb.now = tb.now.Add(d)
			ev = Tick{}
		case how == ".":
			ev = Heartbeat{replicaOf(name)}
		case how == "~":
			ev = Gone{replicaOf(name).Group}
		default:
			tb.calls++
			q.CommitFailures, q.ShrinkOnly = int64(strings.Count(how, "!")), strings.Contains(how, "-")
			ev = Asked{q}
		}
		o := tb.Step(tb.now, ev)
		result = o.Why
		if o.Cohort != nil {
			result = fmt.Sprint(o.Cohort.ID)
			for _, m := range o.Cohort.Members {
				result += " " + m.ID
			}
		}
	}
	return result
}

func TestCohorts(t *testing.T) {
	for _, c := range []struct {
		about string
		least int
		play  string
		want  string
	}{
		{"one is enough", 1, "a", "1 a"},
		{"the least", 2, "a b", "1 a b"},
		{"too few", 2, "a", "no quorum: only group 0 asks, and a quorum needs 2 groups (--min-groups)"},
		{"the same ones keep the number", 2, "a b b a", "1 a b"},
		{"a failed step changes the number", 2, "a b a! b", "2 a b"},
		{"a new one comes in with all others", 2, "a b c a b", "2 a b c"},
		{"all of the last quorum need no more", 3, "a b c c~ a b", "no quorum: only groups 0, 1 ask, and a quorum needs 3 groups (--min-groups)"},
		{"one that is alive is waited for", 1, "a b a a", "no quorum: group 0 asks, but not group 1, and more than half of the live ones must"},
		{"a straggler", 1, "c. a b", "no quorum: waiting for group 2, which is alive but has not asked, for 10s at most"},
		{"one that is gone is not waited for", 1, "a b a a b~", "3 a"},
		{"nor one that is silent", 1, "a b a a 4s a. 1s", "3 a"},
		{"who is to shrink takes no new one", 1, "a b a c a- b", "2 a b"},
		{"a quorum is never empty", 1, "a a~ b-", "no quorum: no member of the last one is left, and group 1 wants no new ones"},
	} {
		if got := newTable(c.least).do(c.play); got != c.want {
			t.Errorf("%s: %s: %q, want %q", c.about, c.play, got, c.want)
		}
	}
}

// TestStragglersAreWaitedForInVain checks that the wait is no longer than the join timeout.
func TestStragglersAreWaitedForInVain(t *testing.T) {
	tb := newTable(1)
	tb.do("c. a b")
	for range 9 {
		if got := tb.do("a. b. c. 1s"); !strings.Contains(got, "waiting for group 2") {
			t.Fatal(got)
		}
	}
	if got := tb.do("a. b. c. 1s"); got != "1 a b" {
		t.Error(got)
	}
}

// TestARepeatedRequest checks that a repeated request gets the same answer, and makes no other
// cohort.
func TestARepeatedRequest(t *testing.T) {
	tb := newTable(1)
	q := Request{Replica: replicaOf("a"), Call: 7}
	first := tb.Step(tb.now, Asked{q})
	again := tb.Step(tb.now, Asked{q})
	if first.Cohort == nil || again.Cohort != first.Cohort || again.Changed || tb.Asks() {
		t.Errorf("%+v, then %+v", first, again)
	}
	if o := tb.Step(tb.now, Asked{Request{Replica: replicaOf("a"), Call: 6}}); o.Cohort != nil || tb.Asks() {
		t.Errorf("an older one: %+v", o)
	}
}

// TestManyNames checks a program that takes a new name for each request.
func TestManyNames(t *testing.T) {
	tb := newTable(2)
	for i := range 3 * MaxReplicas {
		tb.now = tb.now.Add(time.Millisecond)
		tb.Step(tb.now, Asked{Request{Replica: Replica{ID: fmt.Sprint("a", i)}, Call: 1}})
	}
	if len(tb.alive) != MaxReplicas || tb.alive["a191"] == nil {
		t.Errorf("%d replicas are known", len(tb.alive))
	}
}

// TestTheNextCoordinator checks that the next coordinator continues with the last cohort, and waits
// for its members.
func TestTheNextCoordinator(t *testing.T) {
	o := Options{MinReplicas: 1, JoinTimeout: 10 * time.Second, HeartbeatTimeout: 5 * time.Second}
	tb := &table{State: New(o, 7, []Replica{replicaOf("a"), replicaOf("b")}, began.Add(-4*time.Second)), now: began}
	if got := tb.do("a"); !strings.Contains(got, "but not group 1") {
		t.Error(got)
	}
	if got := tb.do("1s a"); got != "8 a" {
		t.Error(got)
	}
}

// TestRandomReplicas checks the rules for every cohort.
func TestRandomReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 3).Draw(t, "least")
		tb := newTable(least)
		var last *Cohort
		asking := map[string]int64{}
		for i := range rapid.IntRange(1, 60).Draw(t, "events") {
			r := replicaOf(string(rune('a' + rapid.IntRange(0, 4).Draw(t, "replica"))))
			var ev Event
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				ev = Heartbeat{r}
			case 1:
				ev = Gone{r.Group}
				delete(asking, r.ID)
			case 2:
				tb.now = tb.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
				ev = Tick{}
			default:
				ev = Asked{Request{Replica: r, Call: int64(i + 1), ShrinkOnly: rapid.IntRange(0, 9).Draw(t, "shrinks") == 0}}
				asking[r.ID] = int64(i + 1)
			}
			q := tb.Step(tb.now, ev).Cohort
			if q == nil {
				continue
			}
			switch {
			case len(q.Members) == 0:
				t.Fatal("an empty quorum")
			case !slices.IsSortedFunc(q.Members, func(a, b Request) int { return strings.Compare(a.ID, b.ID) }):
				t.Fatalf("not in order: %v", q.Replicas())
			case last != nil && q.ID < last.ID:
				t.Fatalf("quorum %d after %d", q.ID, last.ID)
			case last != nil && q.ID == last.ID && !slices.Equal(q.Replicas(), last.Replicas()):
				t.Fatalf("quorum %d has the members %v, and had %v", q.ID, q.Replicas(), last.Replicas())
			}
			for _, m := range q.Members {
				if asking[m.ID] != m.Call {
					t.Fatalf("%s asks with call %d, and call %d is answered", m.ID, asking[m.ID], m.Call)
				}
			}
			last, asking = q, map[string]int64{}
		}
	})
}
