package rendezvous

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
)

// TestTornLogs loses or garbles the last bytes of a log. The next coordinator still uses the
// entries before these bytes, and learns the rest from the agents' reports.
func TestTornLogs(t *testing.T) {
	for name, c := range map[string]struct {
		forge func([]byte) []byte
		whole bool
	}{
		"whole":              {func(text []byte) []byte { return text }, true},
		"torn":               {func(text []byte) []byte { return text[:len(text)-7] }, false},
		"one byte short":     {func(text []byte) []byte { return text[:len(text)-1] }, false},
		"one byte garbled":   {func(text []byte) []byte { text[len(text)-1]++; return text }, false},
		"garbage appended":   {func(text []byte) []byte { return append(text, 0, 0, 0, 0) }, false},
		"a lot of garbage":   {func(text []byte) []byte { return append(text, bytes.Repeat([]byte{0xff}, 1000)...) }, false},
		"only its beginning": {func(text []byte) []byte { return text[:5] }, false},
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				n1 := h.joinAs(gpus(1, 1), forever)
				h.user().submit(detached(task("a", 1, 1)))
				h.crash()
				h.forge(c.forge)
				h.start()
				time.Sleep(time.Minute)
				if got := bytes.Contains([]byte(h.warned()), []byte("were incomplete and are cut off")); got == c.whole {
					t.Errorf("warned %q", h.warned())
				}
				if name == "only its beginning" {
					return // nothing is known
				}
				got := n1.runs()
				if len(got) != 2 || got[0] != 'a' {
					t.Fatalf("%q run: %+v\n%s", got, h.user().job("a"), h.warned())
				}
				n1.exitJob("a", int(got[1]-'0'), 0)
				if r := h.user().watch("a").over(t); r.Code != 0 || r.Restarts > 2 {
					t.Errorf("%+v", r)
				}
				h.crash()
				h.start()
				if r := h.user().watch("a").over(t); r.Code != 0 {
					t.Errorf("from the mended log: %+v", r)
				}
			})
		})
	}
}

// isReport reports whether an entry is a node's report on a job, of the same type as ev.
func isReport(e replica.Entry, ev job.Event) bool {
	h, ok := e.Event.(cluster.Happened)
	return ok && reflect.TypeOf(h.Event) == reflect.TypeOf(ev)
}

// TestAstray has a log that lost a whole attempt whose ranks are alive. The new coordinator does
// not know these ranks.
func TestAstray(t *testing.T) {
	for name, forgotten := range map[string]func(replica.Entry) bool{
		"the attempt before runs":   func(e replica.Entry) bool { return isReport(e, job.Exited{}) },
		"the attempt before begins": func(e replica.Entry) bool { return isReport(e, job.Started{}) },
		"nothing was begun":         func(e replica.Entry) bool { return isReport(e, job.Prepared{}) },
	} {
		t.Run(name, func(t *testing.T) {
			host(t, func(t *testing.T, h *hosted) {
				fails := func(attempt int) (int, bool) { return 1, attempt == 0 }
				n1, n2 := h.joinAs(gpus(1, 1), fails), h.joinAs(gpus(2, 1), fails)
				h.user().submit(detached(task("a", 2, 1)))
				time.Sleep(5 * time.Second)
				if n1.runs() != "a1" || n2.runs() != "a1" {
					t.Fatalf("%s and %s run", n1.runs(), n2.runs())
				}
				h.crash()
				h.rewrite(func(e replica.Entry) bool { return !forgotten(e) })
				h.start()
				time.Sleep(2 * time.Minute)
				if n1.runs() == "" || n1.runs() != n2.runs() {
					t.Fatalf("%q and %q run: %+v", n1.runs(), n2.runs(), h.user().job("a"))
				}
				attempt := int(n1.runs()[1] - '0')
				n1.exitJob("a", attempt, 0)
				n2.exitJob("a", attempt, 0)
				if r := h.user().watch("a").over(t); r.Code != 0 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestForgottenJob has ranks of a job that is not in the log. They must end before other jobs use
// their node.
func TestForgottenJob(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 2), forever)
		u := h.user()
		b := u.submit(detached(task("b", 1, 1)))
		u.submit(detached(task("a", 1, 1)))
		h.crash()
		h.rewrite(func(e replica.Entry) bool { return e.Submitted == nil || e.Submitted.Job.ID != "a" })
		h.start()
		time.Sleep(5 * time.Second)
		if got := n1.runs(); got != "b0" {
			t.Errorf("%q run", got)
		}
		if r := n1.finished["a"]; r.Code != 125 || r.Reason != "the coordinator does not know this job" {
			t.Errorf("n1 got %+v", r)
		}
		n1.exitJob("b", 0, 0)
		if r := b.over(t); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestALostNodeStaysLost checks that a lost node stays lost after a restart of the coordinator,
// because another node may have taken its place.
func TestALostNodeStaysLost(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		n1 := h.joinAs(gpus(1, 1), forever)
		was := n1.Membership()
		n1.cable.cut()
		time.Sleep(lease + killTime + time.Second)
		h.crash()
		h.start()
		_, err := session.Join(t.Context(), session.Options{Target: "head:1", Node: gpus(1, 1), Dial: h.connect, Former: was})
		if err == nil {
			t.Fatal("it was taken in again")
		}
		want(t, err.Error(), "node n1 was counted as lost")
		n1.Close("")
	})
}

// TestLogsOfOtherVersions checks that the coordinator refuses logs of other versions and does not
// change them.
func TestLogsOfOtherVersions(t *testing.T) {
	marshal := func(e *pb.Entry) []byte {
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"another format":   marshal(&pb.Entry{Body: &pb.Entry_Founded{Founded: &pb.Founded{Format: "golaunch-log-0", Epoch: "x"}}}),
		"an unknown field": append(entry.Write(replica.Began(now(), "x")), 0xa0, 0x06, 1),
		"an unknown entry": {0xa2, 0x06, 0},
		"no beginning":     entry.Write(replica.Entry{At: now(), Event: cluster.Rejoined{Node: "n1"}}),
	} {
		e, err := entry.Read(b)
		if err == nil {
			_, err = replica.Replay(nil, []replica.Entry{e}, nil)
		}
		if err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// TestEntriesAreRead checks that entries are read as they were written.
func TestEntriesAreRead(t *testing.T) {
	at := time.Unix(1_700_000_000, 5).UTC()
	s, m := wiretest.Filled[replica.Submission](), replica.Member{Node: wiretest.Filled[placement.Node](), Instance: "i"}
	s.Job.Request.Keep = nil
	entries := []replica.Entry{
		replica.Began(at, "epoch"), {At: at, Submitted: &s}, {At: at, Admitted: &m},
	}
	drain, cancel := wiretest.Filled[job.Draining](), wiretest.Filled[job.Cancel]()
	drain.At = time.Time{} // the entry has the time
	for _, ev := range []cluster.Event{
		cluster.Joined{Node: m.Node},
		cluster.Lost{Node: "n1", Why: "why"},
		cluster.Rejoined{Node: "n1"},
		cluster.Drain{Node: "n1"},
		cluster.Drain{Node: drain.Node, Leaves: &drain},
		cluster.Avoid{Node: "n1", Why: "why"},
		cluster.Readmit{Node: "n1"},
	} {
		entries = append(entries, replica.Entry{At: at, Event: ev})
	}
	// The time of these events is the time of the entry.
	prepared, reached := wiretest.Filled[job.Prepared](), wiretest.Filled[job.Reached]()
	saved := wiretest.Filled[job.Saved]()
	prepared.At, reached.At, saved.At, cancel.At = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	for _, ev := range []job.Event{
		prepared, reached, wiretest.Filled[job.Started](), wiretest.Filled[job.Ready](), wiretest.Filled[job.Met](), wiretest.Filled[job.Stalled](),
		wiretest.Filled[job.Stepped](), saved, wiretest.Filled[job.Exited](), wiretest.Filled[job.Stopped](), wiretest.Filled[job.Elapsed](), wiretest.Filled[job.TimedOut](), cancel, wiretest.Filled[job.Catching](),
	} {
		entries = append(entries, replica.Entry{At: at, Event: cluster.Happened{Job: "j", Event: ev}})
	}
	for _, e := range entries {
		got, err := entry.Read(entry.Write(e))
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, e)
		}
	}
}
