package rendezvous

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// TestReadFormat2 reads a story, a log with entries of every kind, as it was recorded when the
// format of the log was 2.
func TestReadFormat2(t *testing.T) {
	text, err := os.ReadFile("testdata/format/log-2.entries")
	if err != nil {
		t.Fatal(err)
	}
	past, err := log.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s := tellStory()
	if len(past.Entries) != len(s.entries) {
		t.Fatalf("the story has %d entries, and %d are recorded", len(s.entries), len(past.Entries))
	}
	read := replica.New()
	for i, b := range past.Entries {
		e, err := entry.Read(b)
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		read.Apply(e)
	}
	if !bytes.Equal(read.Snapshot(), s.state.Snapshot()) {
		t.Error("what is read gives another state")
	}
}

var recordFormat = flag.Bool("record-format", false, "write the golden files of the log's format")

// TestFormatKeepsItsBytes compares the bytes of the log with recorded bytes: entries of every kind,
// and the snapshot of a state with jobs in every phase. A change of these bytes needs a new number
// of the format.
func TestFormatKeepsItsBytes(t *testing.T) {
	s := tellStory()
	s.tellNew()
	s.tellCapacity()
	s.event(cluster.Freed{Node: "n8", GPUs: []int{1}})
	var golden bytes.Buffer
	for i, e := range s.entries {
		fmt.Fprintf(&golden, "entry %d %x\n", i, entry.Write(e))
	}
	fmt.Fprintf(&golden, "snapshot %x\n", s.state.Snapshot())
	const file = "testdata/format/log-3.golden"
	if *recordFormat {
		if err := os.WriteFile(file, golden.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(golden.String(), "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Fatalf("line %d is %s: is there a new format? then -record-format", i, line)
		}
	}
	text, _ := strings.CutPrefix(lines[len(s.entries)], "snapshot ")
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	read, err := replica.Restore(b)
	if err != nil || !bytes.Equal(read.Snapshot(), s.state.Snapshot()) {
		t.Errorf("the recorded snapshot is read as another state: %v", err)
	}
}

// TestSnapshotOfFormat2IsRefused reads the log of a version whose snapshots used the names of Go
// types.
func TestSnapshotOfFormat2IsRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/format/log-2.snapshot")
	if err != nil {
		t.Fatal(err)
	}
	past, err := log.Parse(text)
	if err != nil || past.Snapshot == nil {
		t.Fatalf("%d bytes, %v", len(past.Snapshot), err)
	}
	if _, err := replica.Replay(past.Snapshot, nil, nil); !errors.Is(err, replica.ErrVersion) {
		t.Errorf("it is read: %v", err)
	}
}

// story is a log of a cluster with every kind of entry. It plays the nodes: it adds their answers
// to the orders of jobs.
type story struct {
	state   *replica.State
	at      time.Time
	entries []replica.Entry
}

func (s *story) add(e replica.Entry) {
	s.at = s.at.Add(1500 * time.Millisecond)
	e.At = s.at
	s.entries = append(s.entries, e)
	for _, step := range s.state.Apply(e).Steps {
		for _, a := range step.Actions {
			s.answer(step.Job, a)
		}
	}
}

func (s *story) event(ev cluster.Event) { s.add(replica.Entry{Event: ev}) }

func (s *story) reports(id string, ev job.Event) { s.event(cluster.Happened{Job: id, Event: ev}) }

func (s *story) answer(id string, a job.Action) {
	switch a := a.(type) {
	case job.Prepare:
		s.reports(id, job.Prepared{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt, Port: 29500})
	case job.Reach:
		s.reports(id, job.Reached{Node: a.Node, Seq: a.Seq})
	case job.Start:
		started := job.Started{
			Node: a.Group.Node.Name, Unit: a.Unit, Attempt: a.Attempt,
			Imports: job.Imports{Waited: time.Second, Took: time.Second, Forked: 1, Forking: time.Millisecond, Why: "it is told"},
		}
		for _, b := range a.Group.Bundles {
			started.PIDs, started.RAS = append(started.PIDs, 100+b.Rank), append(started.RAS, fmt.Sprintf("10.0.0.1:%d", 28000+b.Rank))
		}
		s.reports(id, started)
	case job.Stop:
		s.reports(id, job.Stopped{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt})
	}
}

func (s *story) join(name string, addr string, labels map[string]string) {
	n := placement.Node{
		Name: name, Addr: netip.MustParseAddr(addr), Others: []netip.Addr{netip.MustParseAddr("fd00::" + addr[len(addr)-1:])}, CPUs: 64, Memory: 1 << 40,
		Labels: labels, GPUs: []placement.GPU{{Index: 0, UUID: "GPU-" + name + "-0"}, {Index: 1, UUID: "GPU-" + name + "-1"}, {Index: 2, UUID: "GPU-" + name + "-2"}},
	}
	if name == "n8" {
		n.GPUs[1].HeldBy = "pid 4411"
	}
	s.add(replica.Entry{Admitted: &replica.Member{Node: n, Instance: "instance-" + name, Patience: 20 * time.Second}})
	s.event(cluster.Joined{Node: n})
}

func (s *story) submit(id string, nodes, ranks int, change func(*replica.Submission)) {
	sub := replica.Submission{
		Task: []byte("\x00task of " + id), Title: "python train.py --job " + id, Key: "key of " + id, Detached: true, PlacementTimeout: time.Hour,
		BackoffMin: time.Second, BackoffMax: time.Minute,
		Spec: cluster.Spec{Job: job.Spec{
			ID: id, Restart: job.RestartJob, MaxRestarts: 2, RefillAfter: time.Hour, ExcludeAfter: 2, ExcludeFor: time.Hour, GrowAfter: 5 * time.Minute,
			DrainTime: time.Minute, Grace: 30 * time.Second, Rules: "stop licence /licence refused/ ask for a seat\n",
			ExitCodes: map[report.Ending]int{report.EndPreempted: 75, report.EndProgram: 3},
			Request:   placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{ranks}, GPU: true, CPUs: 2, Memory: 1 << 30},
		}},
	}
	change(&sub)
	s.add(replica.Entry{Submitted: &sub})
}

func (s *story) exit(id, node string, unit, attempt, rank int, x report.Exit, text string) {
	s.reports(id, job.Exited{
		Node: node, Unit: unit, Attempt: attempt, Rank: rank, Exit: x, At: s.at, Lived: time.Minute + time.Millisecond, Step: 41, Tail: text + "\xff\n",
		Traceback: "Traceback (most recent call last):\nRuntimeError: " + text, Kernel: "NVRM: of " + node,
	})
}

// tellNew continues with entries that format 2 did not have.
func (s *story) tellNew() {
	s.reports("ranks", job.Saved{Node: "n7", State: job.SaveBegan, Path: "/c/step-30", Step: 30, Ago: time.Second})
	s.reports("ranks", job.Saved{
		Node: "n7", State: job.SaveComplete, Path: "/c/step-30", Format: "dcp", Step: 30, Bytes: 7 << 30, Shared: true, Ago: time.Second, Took: time.Minute,
	})
	s.reports("ranks", job.Saved{Node: "n7", State: job.SavePartial, Path: "/c/step-35", Why: ".metadata is missing"})
	s.reports("ranks", job.Saved{Node: "n7", State: job.SaveBegan, Path: "/c/step-40", Step: 40})
	s.reports("ranks", job.Cancel{Code: 143, Why: "stopped by golaunch stop --save", Within: time.Minute, AfterSave: true})
	s.reports("ranks", job.Catching{Node: "n7", Unit: 1})
	s.submit("groups", 1, 2, func(sub *replica.Submission) {
		sub.Job.Request.GPU, sub.Job.Restart, sub.Job.Groups, sub.Job.MinGroups = false, job.RestartGroup, 2, 1
	})
	s.event(cluster.Limited{Limits: cluster.Limits{"alice": {cluster.Batch: 1}, cluster.AnyUser: {cluster.Production: 0, cluster.Batch: 6}}})
	s.submit("limited", 1, 1, func(sub *replica.Submission) {
		sub.Priority, sub.User, sub.Submitter = cluster.Batch, "alice", new(uint32(1000))
	})
	s.submit("urgent", 1, 1, func(sub *replica.Submission) { sub.Priority, sub.User = cluster.Production, "bob" })
	s.submit("lossy", 1, 2, func(sub *replica.Submission) { sub.Job.Request.GPU, sub.Job.LostRanks = false, 1 })
	members := []lighthouse.Replica{{ID: "0_7", Group: 0}, {ID: "1_7", Group: 1}}
	s.reports("groups", job.Cohort{ID: 7, Members: members})
	s.reports("groups", job.Cohort{ID: 7, Members: members, Why: "1 of 2 groups has asked"})
}

// tellCapacity continues with requested nodes. One node has joined and was lost, one was given
// back, one was refused, and one does not exist yet.
func (s *story) tellCapacity() {
	tag := func(n int) string { return s.state.Capacity.Sorted()[n].Tag }
	s.add(replica.Entry{Capacity: capacity.Requested{Kind: "a100-8", Nodes: 3, Why: "for job large"}})
	s.join("n9", "10.0.0.9", map[string]string{capacity.TagLabel: tag(0)})
	s.add(replica.Entry{Capacity: capacity.Failed{Tag: tag(0), Why: "node n9 has 2 of the 8 GPUs of its kind"}})
	s.event(cluster.Lost{Node: "n9", Why: "its agent was silent for 15s"})
	s.add(replica.Entry{Capacity: capacity.Released{Tag: tag(1), Code: capacity.CodeLate, Why: "it did not come within 10m0s"}})
	s.add(replica.Entry{Capacity: capacity.Gone{Tag: tag(2), Why: "sbatch: invalid partition"}})
	s.add(replica.Entry{Capacity: capacity.Gone{Tag: tag(2), Why: "Slurm does not have it"}})
	s.add(replica.Entry{Capacity: capacity.Requested{Kind: "h100-8", Nodes: 1, Why: "for job large"}})
}

// tellStory has jobs in every state at its end, and entries of every kind.
func tellStory() *story {
	s := &story{state: replica.New(), at: time.Unix(1_790_000_000, 123_000_000).UTC()}
	s.add(replica.Began(s.at, "epoch-of-the-story"))
	for i := 1; i <= 8; i++ {
		s.join(fmt.Sprint("n", i), fmt.Sprint("10.0.0.", i), map[string]string{"rack": fmt.Sprint("r", i%2), placement.TopologyLabel: fmt.Sprintf("s%d.n%d", i%2, i)})
	}
	none := func(*replica.Submission) {}
	ones := func(restart job.Restart) func(*replica.Submission) {
		return func(sub *replica.Submission) { sub.Job.Restart, sub.Submitter = restart, new(uint32(1000)) }
	}
	// A job that fails, restarts, hangs, trains and gets a departure.
	s.submit("gang", 2, 2, func(sub *replica.Submission) {
		sub.Submitter, sub.Job.Request.MaxNodes, sub.Job.Request.MinNodes = new(uint32(1000)), 3, 2
	})
	s.submit("nodes", 1, 2, ones(job.RestartNode))
	s.exit("gang", "n1", 0, 0, 0, report.Exit{Code: 1}, "CUDA error: unknown error")
	s.reports("gang", job.Elapsed{Unit: 0, Attempt: 1})
	s.reports("gang", job.Met{Node: "n1", Attempt: 1, Why: "7 of 8 ranks have come"})
	s.reports("gang", job.Stepped{Node: "n1", Attempt: 1, Step: 12, Ago: time.Second})
	s.reports("gang", job.Stepped{Node: "n1", Attempt: 1, Step: 40, Ago: time.Second})
	s.reports("gang", job.Stalled{
		Node: "n2", Attempt: 1, Ranks: []job.Still{{Rank: 2, For: time.Minute, Beat: true, Step: 40, Does: "asleep (futex_wait_queue)"}, {Rank: 3, For: time.Minute, Step: -1}},
		Behind: []job.Client{{Addr: netip.MustParseAddr("10.0.0.1"), PID: 100, Key: "it has not started collective 7"}}, More: 1, Moving: 1,
	})
	s.event(cluster.Drain{Node: "n2", Leaves: &job.Draining{Node: "n2", Within: time.Minute, Why: "the spot instance ends"}})
	s.reports("gang", job.Ready{Node: "n2", Attempt: 1})
	s.event(cluster.Drain{Node: "n6"})
	s.event(cluster.Rejoined{Node: "n5"})
	s.event(cluster.Avoid{Node: "n5", Why: "GPU 1 has an uncorrectable error"})
	s.event(cluster.Avoid{Node: "n4", Why: "GPU 0 is lost"})
	s.event(cluster.Readmit{Node: "n4"})
	// A reservation with jobs in it, one of which has ended.
	s.submit("reserved", 1, 3, func(sub *replica.Submission) { sub.Reserve, sub.Colocated = true, 2 })
	s.submit("inner", 1, 1, func(sub *replica.Submission) {
		sub.Within, sub.GPUs, sub.Job.Request.Strategy = "reserved", []int{0, 2}, placement.Pack
	})
	s.submit("ranks", 1, 2, func(sub *replica.Submission) {
		sub.Within, sub.Job.Restart, sub.Backfill = "reserved", job.RestartRank, true
	})
	// Jobs that end by success, by a failure of the program, and on request.
	cpu := func(sub *replica.Submission) { sub.Job.Request.GPU = false }
	s.submit("good", 1, 1, cpu)
	s.exit("good", s.node("good"), 0, 0, 0, report.Exit{}, "done")
	s.reports("good", job.Stopped{Node: s.node("good")})
	s.submit("bad", 1, 1, func(sub *replica.Submission) { cpu(sub); sub.Job.Restart = job.RestartNever })
	s.exit("bad", s.node("bad"), 0, 0, 0, report.Exit{Code: 137, Signal: 9, OOM: true}, "killed")
	s.submit("unwanted", 1, 1, cpu)
	s.reports("unwanted", job.Cancel{Code: 130, Why: "interrupted", Ending: report.EndCancelled, Within: time.Second, Loose: true, Signal: 2, Once: true})
	s.submit("unable", 1, 1, cpu)
	// A job that waits, a job behind it, and a job that was not placed in time.
	s.submit("large", 7, 3, none)
	s.submit("behind", 6, 2, none)
	s.submit("late", 6, 3, none)
	s.reports("late", job.TimedOut{Kind: job.AlarmPlacement, Seq: 1})
	s.event(cluster.Lost{Node: "n1", Why: "its agent was silent for 15s"})
	s.reports("gang", job.Prepared{Node: "n3", Attempt: 9, Err: "in use", Unable: report.Exit{Code: 127, Spawn: "python: not found"}})
	s.reports("gang", job.Reached{Node: "n3", Seq: 99, Err: "no route to host", Unable: report.Exit{Code: 126, Spawn: "it is a directory"}})
	return s
}

// node is a node of a job.
func (s *story) node(id string) string {
	for name := range s.state.Jobs[id].Nodes {
		return name
	}
	return ""
}
