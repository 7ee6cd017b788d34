package rendezvous

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
)

// These are the largest values: the nodes and ranks of a job, and the numbers that take most bytes
// in protobuf.
const (
	mostNodes = 12_500
	mostPIDs  = 1 << 22
	big       = math.MaxInt32
	bigger    = math.MaxInt64
	longest   = time.Duration(math.MaxInt64)
)

func text(n int) string { return strings.Repeat("x", n) }

// noise is the worst output of a rank: it is not UTF-8, and takes six times as many bytes in JSON.
func noise(n int) string { return strings.Repeat("\xff", n) }

var (
	largestID   = text(wire.MaxID)
	largestName = text(253)
	largestRAS  = text(wire.MaxRAS)
	someDay     = time.Date(9999, 1, 1, 0, 0, 0, 999_999_999, time.UTC)
)

func largestAddr(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
}

func repeat[T any](n int, f func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = f(i)
	}
	return all
}

func largestNode(name string) placement.Node {
	n := placement.Node{
		Name: name, Addr: largestAddr(0), CPUs: big, Memory: bigger, Others: repeat(16, largestAddr),
		GPUs: repeat(wire.MaxGPUs, func(i int) placement.GPU { return placement.GPU{Index: i, UUID: text(60), HeldBy: text(60)} }),
	}
	n.Labels = map[string]string{"rack": ""}
	n.Labels["rack"] = text(wire.MaxNode - proto.Size(wire.FromNode(n)) - 8)
	return n
}

func largestExit() report.Exit {
	return report.Exit{Code: big, Signal: big, OOM: true, Spawn: text(wire.MaxText)}
}

func largestGPU() *placement.GPU { return &placement.GPU{Index: big, UUID: text(60), HeldBy: text(60)} }

func largestResult() report.Result {
	cost := report.Cost{Cause: text(wire.MaxText), Node: largestName, Interruptions: big, Hours: 0.1, Lost: 0.1}
	save := report.Save{Path: text(wire.MaxText), Format: text(wire.MaxLine), Step: bigger, Bytes: bigger, Began: someDay, Ended: someDay}
	return report.Result{
		Code: big, Ending: report.EndInfrastructure, Reason: text(wire.MaxText), Attempts: big, Restarts: big,
		Cause: &report.Failure{
			Node: largestName, Rank: big, GPU: &report.GPU{Index: big, UUID: text(60)}, Attempt: big, Exit: largestExit(), At: someDay, Lived: longest, Step: bigger, Further: big,
			Why: text(wire.MaxText), Tail: noise(wire.MaxTail), Traceback: noise(wire.MaxTail), Kernel: noise(wire.MaxTail), Hung: true,
			Verdict: report.Verdict{
				Action: report.ActionReplace, Cause: text(wire.MaxLine), Title: text(wire.MaxText), Quote: text(wire.MaxText), From: report.FromTraceback,
				Line: big, Victim: true, Remedy: text(wire.MaxText),
			},
		},
		Start: &report.Start{
			Attempt: big, Modules: largestModules(),
			Phases: repeat(8, func(int) report.StartPhase {
				return report.StartPhase{Phase: report.PhaseProcesses, Seconds: 0.1, Node: largestName, Rank: new(big)}
			}),
		},
		Saves:   &report.Saves{Last: &save, InFlight: &save, Every: 0.1, AtRisk: 0.1},
		Goodput: &report.Goodput{Unit: "GPU", Goodput: 0.1, Hours: 0.1, Interruptions: big, Costs: repeat(33, func(int) report.Cost { return cost })},
	}
}

func largestModules() []report.Module {
	return repeat(job.MaxModules, func(int) report.Module { return report.Module{Name: text(wire.MaxLine), Seconds: 0.1} })
}

// largestReports returns the largest reports of an agent.
func largestReports() []any {
	return []any{
		wire.Opened{},
		wire.Restated{},
		wire.Draining{Within: longest, Why: text(wire.MaxText)},
		wire.Freed{GPUs: repeat(wire.MaxGPUs, func(i int) placement.GPU { return placement.GPU{Index: i, UUID: text(60)} })},
		wire.Replica{Unit: big, Attempt: big, Request: lighthouse.Request{
			Replica: lighthouse.Replica{ID: text(wire.MaxReplica), Group: big}, Call: bigger, Again: true, ShrinkOnly: true,
			CommitFailures: bigger, Member: []byte(noise(wire.MaxMember)),
		}},
		job.Prepared{Unit: big, Attempt: big, Port: 65535, Err: text(wire.MaxText)},
		job.Reached{Seq: big, Err: text(wire.MaxText)},
		job.Ready{Unit: big, Attempt: big},
		job.Catching{Unit: big, Attempt: big},
		job.Started{Unit: big, Attempt: big, PIDs: repeat(wire.MaxRanks, func(i int) int { return mostPIDs - i })},
		job.Started{
			Unit: big, Attempt: big, PIDs: repeat(wire.MaxGPUs, func(i int) int { return mostPIDs - i }),
			RAS:     repeat(wire.MaxGPUs, func(int) string { return largestRAS }),
			Imports: job.Imports{Waited: longest, Took: longest, Forked: big, Forking: longest, Why: text(wire.MaxText), Modules: largestModules()},
		},
		wire.Met{Unit: big, Attempt: big, Meeting: job.Meeting{
			Last: &job.Client{Addr: largestAddr(0), PID: mostPIDs, Key: text(wire.MaxLine)}, Ago: longest,
		}},
		wire.Met{Unit: big, Attempt: big, Meeting: largestMeeting(mostNodes, 8)},
		wire.Met{Unit: big, Attempt: big, Meeting: largestMeeting(8*mostNodes, 1)},
		job.Stalled{
			Unit: big, Attempt: big,
			Ranks: repeat(wire.MaxRanks, func(i int) job.Still {
				return job.Still{Rank: big - i, For: longest, Beat: true, Step: bigger, Does: text(wire.MaxLine)}
			}),
			Behind: repeat(16, func(i int) job.Client {
				return job.Client{Addr: largestAddr(i), PID: mostPIDs, Key: text(wire.MaxLine)}
			}),
		},
		job.Stepped{Unit: big, Attempt: big, Step: bigger, Ago: longest},
		job.Saved{
			Unit: big, Attempt: big, State: job.SaveComplete, Path: text(wire.MaxText), Format: text(wire.MaxLine), Step: bigger, Bytes: bigger, Shared: true,
			Ago: longest, Took: longest, Why: text(wire.MaxText),
		},
		job.Exited{
			Unit: big, Attempt: big, Rank: big, Exit: largestExit(), At: someDay, Lived: longest, Step: bigger, Told: true, Alike: true,
			Tail: noise(wire.MaxTail), Traceback: noise(wire.MaxTail), Kernel: noise(wire.MaxTail),
		},
		job.Stopped{Unit: big, Attempt: big},
	}
}

// largestMeeting has the most ranks on the most nodes. All ranks except one wait.
func largestMeeting(nodes, ranks int) job.Meeting {
	m := job.Meeting{Key: text(wire.MaxLine), Came: nodes * ranks, Waiting: nodes*ranks - 1}
	m.Clients = repeat(nodes*ranks, func(i int) job.Client {
		return job.Client{Addr: largestAddr(i / ranks), PID: mostPIDs - i%ranks, Key: m.Key}
	})
	m.Clients[0].Key = ""
	return m
}

// largestOrders returns the largest orders to a node.
func largestOrders(n placement.Node) []any {
	bundles := repeat(wire.MaxRanks, func(i int) placement.Bundle { return placement.Bundle{Rank: big - i, LocalRank: i} })
	withGPUs := repeat(wire.MaxGPUs, func(i int) placement.Bundle { return placement.Bundle{Rank: big - i, LocalRank: i, GPU: &n.GPUs[i]} })
	world := job.World{
		WorldSize: big, Nodes: big, MasterAddr: text(45), MasterPort: 65535, Uniform: big, MaxRestarts: big, LocalSize: big, Network: text(256),
		Groups: job.MaxGroups, Group: big, FirstRank: big, FirstNode: big,
	}
	gpuWorld := world
	gpuWorld.GPUs = n.GPUs
	return []any{
		wire.Assign{Task: []byte(noise(wire.MaxTask)), Submitter: new(uint32(math.MaxUint32)), Workspace: largestWorkspace},
		job.Prepare{Node: n.Name, Unit: big, Attempt: big, Fresh: true, Peers: repeat(20*wire.MaxPeers, largestAddr)},
		job.Admit{Node: n.Name, Peers: repeat(20*wire.MaxPeers, largestAddr)},
		job.Reach{Node: n.Name, Seq: big, Addr: text(45), Port: 65535, Late: true},
		job.Start{Unit: big, Attempt: big, Group: placement.Group{Node: n, NodeRank: big, Bundles: bundles}, World: world},
		job.Start{Unit: big, Attempt: big, Group: placement.Group{Node: n, NodeRank: big, Bundles: withGPUs}, World: gpuWorld},
		job.Notice{Node: n.Name, Unit: big, Attempt: big, Within: longest, Why: text(wire.MaxText)},
		job.Stop{Node: n.Name, Unit: big, Attempt: big, Grace: longest, Kill: true, Evidence: job.HangEvidence},
		wire.Signal{Number: syscall.SIGUSR2},
		largestCohort(),
		wire.Ask{Question: wire.Question{About: wire.AboutLogs, Logs: largestFilter()}, ID: text(26)},
		job.Finish{Result: largestResult()},
		wire.Leave{Why: text(wire.MaxText)},
	}
}

// largestCohort has the most members, and the most bytes of members in all.
func largestCohort() wire.Cohort {
	return wire.Cohort{
		Unit: big, Attempt: big, Replica: text(wire.MaxReplica), Call: bigger, ID: bigger, Created: someDay,
		Members: repeat(job.MaxGroups, func(int) []byte { return []byte(noise(lighthouse.MaxMembers/job.MaxGroups - 8)) }),
	}
}

func largestFilter() report.LogFilter {
	return report.LogFilter{
		Attempt: big, Follow: true, Ranks: repeat(wire.MaxSpans, func(i int) report.Span { return report.Span{From: big - i, To: big} }),
		From: repeat(wire.MaxPositions, func(i int) report.LogPosition {
			return report.LogPosition{Attempt: big, Rank: big - i, Stream: 2, Offset: bigger}
		}),
	}
}

// largestSubmission has the most lines of rules, none of which may be lost. largestWorkspace has
// the longest ID.
var largestWorkspace = report.Workspace{ID: strings.Repeat("f", 64), Bytes: math.MaxInt64, Files: math.MaxInt32}

func largestSubmission() replica.Submission {
	rules := strings.Repeat("# 漢字\n", wire.MaxRules)[:wire.MaxRules-100]
	rules = rules[:strings.LastIndex(rules, "\n")+1] + "stop  licence  /licence server .* refused/  ask for a candidate\n"
	s := replica.Submission{
		Task: []byte(noise(wire.MaxTask)), Title: text(wire.MaxTitle), Key: text(wire.MaxKey), Detached: true, Workspace: largestWorkspace, PlacementTimeout: longest, BackoffMin: longest, BackoffMax: longest,
		Spec: cluster.Spec{
			GPUs: repeat(wire.MaxGPUs, func(i int) int { return big - i }), Backfill: true, Priority: cluster.Interactive,
			Job: job.Spec{
				ID: largestID, Restart: job.RestartJob, MaxRestarts: big, RefillAfter: longest, ExcludeAfter: big, ExcludeFor: longest, GrowAfter: longest,
				DrainTime: longest, ExitCodes: map[report.Ending]int{}, Rules: rules, Grace: longest,
				Request: placement.Request{
					MinNodes: 1, MaxNodes: wire.MaxSizes, GPU: true, PerGPU: placement.MaxPerGPU, CPUs: big, Memory: bigger, Strategy: placement.StrictPack,
					PerNode: repeat(wire.MaxSizes, func(int) int { return wire.MaxRanks }),
					Order:   placement.Order{By: placement.ByList, List: repeat(mostNodes, func(i int) string { return fmt.Sprintf("%0253d", i) })},
				},
			},
		},
	}
	for _, e := range report.Unsuccessful() {
		s.Job.ExitCodes[e] = 255
	}
	return s
}

// stored puts a workspace into a directory, and returns its ID.
func stored(t *testing.T, dir string) string {
	t.Helper()
	w, err := workspace.NewCache(dir).Pack(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	return w.ID
}

// TestLargest sends the largest legal value of each kind through the stream that normally carries
// it.
func TestLargest(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n := largestNode(largestName)
		cable := &cable{dial: h.connect}
		s, err := session.Join(t.Context(), session.Options{Target: "head:1", Node: n, Dial: cable.connect, Warn: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close("")
		synctest.Wait()
		taken := func() uint64 {
			seq, _ := ask(h.c, func() (uint64, error) { return h.c.members[n.Name].taken.Load(), nil })
			return seq
		}
		for i, ev := range largestReports() {
			s.Report(largestID, ev)
			synctest.Wait()
			if got := taken(); got != uint64(i+1) {
				t.Fatalf("%T: %d of %d reports were taken", ev, got, i+1)
			}
			m := wiretest.Arrives(t, wire.FromEvent(largestID, ev))
			event := wire.ToEvent("", m)
			if event == nil {
				continue
			}
			if b := entry.Write(replica.Entry{At: someDay, Event: cluster.Happened{Job: largestID, Event: event}}); len(b) > wire.MaxMessage {
				t.Errorf("%T: an entry of %d bytes in the log", ev, len(b))
			}
			if _, stalled := ev.(job.Stalled); !stalled && !reflect.DeepEqual(event, ev) {
				t.Errorf("%T arrives otherwise", ev)
			}
		}
		for _, do := range largestOrders(s.Node) {
			h.c.post(func() { h.c.order(n.Name, largestID, do) })
			for got := (wire.Order{}); got.Do == nil || reflect.TypeOf(got.Do) != reflect.TypeOf(do) || got.Job != largestID; {
				got = <-s.Orders() // other orders follow from the reports
				if r, ok := got.Do.(wire.Ask); ok {
					r.Via = nil
					got.Do = r
				}
				if reflect.TypeOf(got.Do) == reflect.TypeOf(do) && got.Job == largestID && !reflect.DeepEqual(got.Do, do) {
					if _, stop := do.(job.Stop); stop {
						got.Do = nil // about attempts that are astray
						continue
					}
					t.Errorf("%T arrives otherwise", do)
				}
			}
		}
		if len(cable.conns) != 1 {
			t.Errorf("%d connections", len(cable.conns))
		}
		if warned := h.warned(); warned != "" {
			t.Error(warned)
		}
	})
}

// TestLargestSubmission checks that the largest submission is accepted and watched, and that the
// next coordinator knows it unchanged.
func TestLargestSubmission(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		h.crash()
		h.cfg.Workspaces = filepath.Join(h.dir, "workspaces")
		h.start()
		s := largestSubmission()
		s.Workspace.ID = stored(t, h.cfg.Workspaces)
		if size := len(s.Job.Rules); size > wire.MaxRules || size < wire.MaxRules-200 {
			t.Errorf("rules of %d bytes", size)
		}
		u := h.user()
		submitted, err := u.Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		submitted.Close()
		holds := func() {
			t.Helper()
			got, _ := ask(h.c, func() (replica.Submission, error) { return h.c.jobs[largestID].Submission, nil })
			if !reflect.DeepEqual(got, s) {
				t.Error("the coordinator has another submission")
			}
		}
		holds()
		h.crash()
		h.start()
		holds()
		w, err := u.Watch(t.Context(), largestID)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		plan := placement.Plan{Groups: repeat(mostNodes, func(i int) placement.Group {
			return placement.Group{Node: gpus(i, 8), NodeRank: i, Bundles: repeat(8, func(r int) placement.Bundle {
				return placement.Bundle{Rank: 8*i + r, LocalRank: r, GPU: largestGPU()}
			})}
		})}
		plan.Groups[1] = placement.Group{Node: largestNode("n"), NodeRank: 1, Bundles: repeat(wire.MaxRanks, func(i int) placement.Bundle {
			return placement.Bundle{Rank: big - i, LocalRank: i}
		})}
		result, decision := largestResult(), report.Decision{At: someDay, Reason: text(wire.MaxText), News: true}
		decision.Failure = result.Cause
		updates := []wire.Update{{Decision: &decision}, {Granted: &plan}, {Result: &result}}
		h.c.post(func() {
			for _, u := range updates {
				h.c.tell(h.c.jobs[largestID], u)
			}
		})
		for i := 0; i < len(updates); {
			got, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Decision != nil && !got.Decision.News {
				continue // the state of the job
			}
			if !reflect.DeepEqual(got, updates[i]) {
				t.Errorf("update %d arrives otherwise", i)
			}
			i++
		}
	})
}

// TestTooLarge checks that a value that is too large is refused before it is sent. The error says
// what is too large, and by how much. A client that sends it anyway is refused too.
func TestTooLarge(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		for want, change := range map[string]func(*replica.Submission){
			"the command and its --env: 524289 bytes, 524288 at most": func(s *replica.Submission) { s.Task = make([]byte, wire.MaxTask+1) },
			"the failure rules: 65537 bytes, 65536 at most":           func(s *replica.Submission) { s.Job.Rules = text(wire.MaxRules + 1) },
			"the order's list of 20000 nodes: 5140000 bytes, 4194304 at most": func(s *replica.Submission) {
				s.Job.Request.Order.List = repeat(20_000, func(int) string { return largestName })
			},
			"the ranks per node: 65537 numbers, 65536 at most": func(s *replica.Submission) { s.Job.Request.PerNode = make([]int, wire.MaxSizes+1) },
			"the choice of GPUs: 1025 indexes, 1024 at most":   func(s *replica.Submission) { s.GPUs = make([]int, wire.MaxGPUs+1) },
			"the id: 65 bytes, 64 at most":                     func(s *replica.Submission) { s.Job.ID = text(wire.MaxID + 1) },
		} {
			s := task("a", 1, 1)
			change(&s)
			u := h.user()
			_, err := u.Submit(t.Context(), s)
			if r, ok := err.(*session.RequestError); !ok || !r.Bad || !strings.Contains(r.Why, want) {
				t.Errorf("%v, want %q", err, want)
			}
			if h.submits(wire.FromSubmission(s)) == nil {
				t.Errorf("taken: %s", want)
			}
		}
		if _, err := h.user().Logs(t.Context(), "a", report.LogFilter{Ranks: make([]report.Span, wire.MaxSpans+1)}); err == nil || !strings.Contains(err.Error(), "16385 ranges") {
			t.Error(err)
		}
		n := node(1)
		n.GPUs = make([]placement.GPU, wire.MaxGPUs+1)
		if _, err := session.Join(t.Context(), session.Options{Target: "head:1", Node: n, Dial: h.connect}); err == nil || !strings.Contains(err.Error(), "it has 1025 GPUs") {
			t.Error(err)
		}
	})
}

// TestReportThatIsTooLong sends a report that is longer than any real report. It causes a warning,
// and the connection stays open.
func TestReportThatIsTooLong(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		var warned []string
		cable := &cable{dial: h.connect}
		s, err := session.Join(t.Context(), session.Options{
			Target: "head:1", Node: node(1), Dial: cable.connect, Warn: func(err error) { warned = append(warned, err.Error()) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Report("j", job.Started{PIDs: repeat(1<<18, func(int) int { return mostPIDs })})
		time.Sleep(10 * lease)
		if len(warned) != 1 || !strings.Contains(warned[0], "node n1 cannot report a job.Started of job j: 1048") || len(cable.conns) != 1 || s.Err() != nil {
			t.Errorf("warned of %q, %d connections, %v", warned, len(cable.conns), s.Err())
		}
		h.c.post(func() { h.c.order("n1", "j", wire.Assign{Task: make([]byte, wire.MaxMessage)}) })
		time.Sleep(10 * lease)
		if len(cable.conns) != 1 || s.Err() != nil {
			t.Errorf("%d connections, %v", len(cable.conns), s.Err())
		}
		want(t, h.warned(), "node n1 does not get *rendezvouspb.ToAgent_Assign of job j: 1048")
		s.Close("")
	})
}

// TestLargestReplies tests the replies that name all jobs.
func TestLargestReplies(t *testing.T) {
	all := repeat(wire.MaxJobs, func(int) string { return largestID })
	for _, m := range []proto.Message{&pb.StopReply{Jobs: all}, &pb.DrainReply{Jobs: all}} {
		if size := proto.Size(m); size > wire.MaxMessage {
			t.Errorf("%T has %d bytes", m, size)
		}
	}
}
