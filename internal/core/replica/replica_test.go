package replica

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/snapshot"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func TestBackoff(t *testing.T) {
	r := Record{Submission: Submission{BackoffMin: time.Second, BackoffMax: time.Minute}}
	for n, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1e9: time.Minute,
	} {
		if got := r.wait(job.Wait{Restarts: n}); got < want*9/10 || got > want*11/10 {
			t.Errorf("restart %d: %v, want %v", n, got, want)
		}
	}
	if got := (&Record{}).wait(job.Wait{Restarts: 3}); got != 0 {
		t.Errorf("%v without a backoff", got)
	}
	if got := r.wait(job.Wait{Restarts: 1, Long: true}); got != time.Minute {
		t.Errorf("%v before a long one", got)
	}
	waits := map[time.Duration]bool{}
	for attempt := range 20 {
		waits[r.wait(job.Wait{Restarts: 1, Attempt: attempt})] = true
	}
	if len(waits) < 15 {
		t.Errorf("20 jobs come back at %d times", len(waits))
	}
}

// TestCausesHaveATime checks that a cause has a time even if it comes from an agent that could not
// start a rank. Such an agent reports no time.
func TestCausesHaveATime(t *testing.T) {
	for what, ev := range map[string]job.Prepared{
		"no command": {Node: "n1", Unable: report.Exit{Code: 127, Spawn: "not found"}},
		"no port":    {Node: "n1", Err: "in use"},
	} {
		s := New()
		log := story(1)[:4]
		for _, e := range log {
			s.Apply(e)
		}
		at := log[len(log)-1].At.Add(time.Hour)
		s.Apply(Entry{At: at, Event: cluster.Happened{Job: "j0", Event: ev}})
		if r := s.Jobs["j0"].Result; r == nil || r.Cause == nil || !r.Cause.At.Equal(at) || r.Attempts != 0 {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// story is a log of jobs of one rank, which hold the node for 400 ms each and fail with evidence.
func story(jobs int) []Entry {
	at := time.Unix(1_700_000_000, 0).UTC()
	n := placement.Node{Name: "n1", CPUs: 8}
	entries := []Entry{Began(at, "e"), {At: at, Admitted: &Member{Node: n, Instance: "i"}}, {At: at, Event: cluster.Joined{Node: n}}}
	for i := range jobs {
		id := fmt.Sprint("j", i)
		s := Submission{
			Spec: cluster.Spec{Job: job.Spec{
				ID: id, Restart: job.RestartNever, Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}},
			}},
			Task: []byte("task"), Title: "title",
		}
		at = at.Add(time.Second)
		entries = append(entries, Entry{At: at, Submitted: &s})
		for i, ev := range []job.Event{
			job.Prepared{Node: "n1", Port: 1024},
			job.Started{Node: "n1", PIDs: []int{7}},
			job.Exited{Node: "n1", Exit: report.Exit{Code: 1}, Tail: "last words", At: at},
			job.Stopped{Node: "n1"},
		} {
			entries = append(entries, Entry{At: at.Add(time.Duration(i+1) * 100 * time.Millisecond), Event: cluster.Happened{Job: id, Event: ev}})
		}
	}
	return entries
}

// TestSchemaNamesTheState finds fields that the schema does not name. A snapshot would have these
// fields under their Go names.
func TestSchemaNamesTheState(t *testing.T) {
	for _, gap := range schema.Gaps(New()) {
		t.Errorf("%s: see schema.go, and change snapshotFormat with it", gap)
	}
}

// TestASnapshotIsTheState checks that a snapshot restores the state, at any point of a log.
func TestASnapshotIsTheState(t *testing.T) {
	entries := story(3)
	whole, err := Replay(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Check(whole); err != nil {
		t.Error(err)
	}
	for i := 1; i <= len(entries); i++ {
		first, err := Replay(nil, entries[:i], nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Replay(first.Snapshot(), entries[i:], nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Snapshot(), whole.Snapshot()) {
			t.Errorf("with a snapshot after %d entries the state is another one", i)
		}
	}
}

// TestJobsThatAreOver checks that finished jobs are known for a while, and their evidence for a
// shorter time.
func TestJobsThatAreOver(t *testing.T) {
	forgotten := 0
	s, err := Replay(nil, story(MaxEnded+3), func(_ Entry, o Outcome) { forgotten += len(o.Forgotten) })
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Jobs) != MaxEnded || len(s.Cluster.Jobs()) != MaxEnded || forgotten != 3 || len(s.Timers) > 0 {
		t.Errorf("%d jobs, %d of the cluster, %d forgotten, %d timers", len(s.Jobs), len(s.Cluster.Jobs()), forgotten, len(s.Timers))
	}
	jobs, others := s.Cluster.Charged(time.Time{})
	charged := others.Users[charge.Pair{}].Nodes
	if charged != 3*400 {
		t.Errorf("%d ms are charged to users for forgotten jobs", charged)
	}
	for _, x := range jobs {
		charged += x[""].Nodes
	}
	if charged != (MaxEnded+3)*400 || others.Idle[""].Nodes != (MaxEnded+2)*600+1000 {
		t.Errorf("%d ms are charged, %d idle", charged, others.Idle[""].Nodes)
	}
	evidence := 0
	for _, j := range s.Jobs {
		if j.Result.Cause.Tail != "" {
			evidence++
		}
	}
	if evidence != maxEvidence {
		t.Errorf("the evidence of %d failures is there", evidence)
	}
}

// TestLogsThatMakeNoSense checks that invalid logs are refused.
func TestLogsThatMakeNoSense(t *testing.T) {
	entries := story(1)
	other := Began(entries[0].At, "e")
	other.Founded.Format = "golaunch-log-0"
	for name, bad := range map[string][]Entry{
		"no beginning": entries[1:], "two beginnings": {entries[0], entries[0]}, "another version": {other},
	} {
		if _, err := Replay(nil, bad, nil); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
	if _, err := Restore([]byte("no snapshot at all")); err == nil {
		t.Error("garbage was read")
	}
}
