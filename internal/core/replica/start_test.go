package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// TestStart follows two starts of a gang, and takes a snapshot at each moment of them.
func TestStart(t *testing.T) {
	began := time.Unix(1_700_000_000, 0).UTC()
	s := New()
	var told []report.Start
	apply := func(after time.Duration, e Entry) {
		e.At = began.Add(after)
		for _, st := range s.Apply(e).Steps {
			if st.Start != nil {
				told = append(told, *st.Start)
			}
		}
		var err error
		if s, err = Restore(s.Snapshot()); err != nil {
			t.Fatal(err)
		}
	}
	happened := func(after time.Duration, ev job.Event) {
		apply(after, Entry{Event: cluster.Happened{Job: "j", Event: ev}})
	}
	n := placement.Node{Name: "n1", CPUs: 8}
	apply(0, Entry{Founded: &Founded{Format: Format, Epoch: "e"}})
	apply(0, Entry{Submitted: &Submission{Spec: cluster.Spec{Job: job.Spec{
		ID: "j", Restart: job.RestartJob, MaxRestarts: 1, Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{2}},
	}}}})
	apply(time.Second, Entry{Admitted: &Member{Node: n, Instance: "i"}})
	apply(time.Second, Entry{Event: cluster.Joined{Node: n}})
	happened(3*time.Second, job.Prepared{Node: "n1", Port: 1024})
	modules := []report.Module{{Name: "torch", Seconds: 4}}
	happened(9*time.Second, job.Started{Node: "n1", PIDs: []int{7, 8}, Imports: job.Imports{Waited: 5 * time.Second, Took: 5 * time.Second, Forked: 2, Modules: modules}})
	happened(13*time.Second, job.Met{Node: "n1", Complete: &job.Complete{Last: 1, Ago: time.Second}})
	happened(16*time.Second, job.Stepped{Node: "n1", Step: 1, Ago: 2 * time.Second})
	happened(17*time.Second, job.Stepped{Node: "n1", Step: 2})
	want(t, told, "1.0 nodes n1, 2.0 checks n1, 5.0 imports, 1.0 processes n1, 3.0 store rank 1, 2.0 step n1 rank 0")
	if len(told) != 3 || len(told[2].Modules) != 1 || told[2].Attempt != 0 {
		t.Errorf("told %+v", told)
	}

	happened(20*time.Second, job.Exited{Node: "n1", Exit: report.Exit{Code: 1}, At: began.Add(20 * time.Second)})
	happened(21*time.Second, job.Stopped{Node: "n1"})
	happened(23*time.Second, job.Elapsed{Attempt: 1})
	happened(24*time.Second, job.Prepared{Node: "n1", Attempt: 1, Port: 1024})
	happened(26*time.Second, job.Started{Node: "n1", Attempt: 1, PIDs: []int{9, 10}, Imports: job.Imports{Waited: time.Microsecond, Took: 5 * time.Second, Modules: modules}})
	happened(30*time.Second, job.Stepped{Node: "n1", Attempt: 1, Step: 1})
	want(t, told, "2.0 backoff, 1.0 checks n1, 2.0 processes n1, 4.0 step n1 rank 0")
	for rank := range 2 {
		happened(31*time.Second, job.Exited{Node: "n1", Attempt: 1, Rank: rank, At: began.Add(31 * time.Second)})
	}
	happened(31*time.Second, job.Stopped{Node: "n1", Attempt: 1})
	r := s.Jobs["j"].Result
	if r == nil || r.Start == nil || r.Start.Attempt != 1 || len(r.Start.Modules) != 0 {
		t.Fatalf("the result is %+v", r)
	}
	want(t, []report.Start{*r.Start}, "2.0 backoff, 1.0 checks n1, 2.0 processes n1, 4.0 step n1 rank 0")
}

// want compares the newest start, in words, with the wanted text.
func want(t *testing.T, starts []report.Start, want string) {
	t.Helper()
	if len(starts) == 0 {
		t.Fatal("no start")
	}
	got := ""
	for i, p := range starts[len(starts)-1].Phases {
		if i > 0 {
			got += ", "
		}
		got += fmt.Sprintf("%.1f %s", p.Seconds, string(p.Phase))
		if p.Node != "" {
			got += " " + p.Node
		}
		if p.Rank != nil {
			got += fmt.Sprint(" rank ", *p.Rank)
		}
	}
	if got != want {
		t.Errorf("the start is\n%s\nwant\n%s", got, want)
	}
}
