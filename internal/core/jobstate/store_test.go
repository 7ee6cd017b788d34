package jobstate

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// started returns a running gang on two nodes with two ranks each; their pids are 100 to 103.
func started(t *testing.T, addr func(i int) string) *State {
	t.Helper()
	s := New(job.Spec{ID: "j", Request: placement.Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{2}}})
	s.Step(job.Submitted{})
	for i := range 2 {
		n := placement.Node{Name: fmt.Sprint("n", i), Addr: netip.MustParseAddr(addr(i))}
		n.Others = []netip.Addr{n.Addr, netip.AddrFrom4([4]byte{192, 168, 0, byte(i)})}
		s.Step(job.Joined{Node: n})
	}
	s.Step(job.Prepared{Node: "n0", Port: 1000})
	s.Step(job.Reached{Node: "n1", Seq: 1})
	for i := range 2 {
		s.Step(job.Started{Node: fmt.Sprint("n", i), PIDs: []int{100 + 2*i, 101 + 2*i}})
	}
	if s.Phase() != job.Running {
		t.Fatal(s.Phase())
	}
	return s
}

func TestMet(t *testing.T) {
	far := func(i int) string { return fmt.Sprint("10.0.0.", i+2) }
	near := func(i int) string { return fmt.Sprint("127.0.0.", i+1) }
	client := func(addr string, pid int, key ...string) job.Client {
		c := job.Client{Addr: netip.MustParseAddr(addr), PID: pid}
		if len(key) > 0 {
			c.Key = key[0]
		}
		return c
	}
	all := []job.Client{client("10.0.0.2", 100), client("10.0.0.2", 101), client("192.168.0.1", 102), client("10.0.0.3", 103)}
	for _, c := range []struct {
		name    string
		addr    func(int) string
		clients []job.Client
		want    string
	}{
		{"all are there", far, all, ""},
		{"one is missing", far, all[:3], "3 of 4 ranks connected; missing: rank 3 (n1, pid 103)"},
		{"the same pid on another node", far, append(all[1:2:2], client("10.0.0.3", 101)), "2 of 4 ranks connected"},
		{"two connections of one", far, append(all[:1:1], client("10.0.0.2", 100, "k")), "1 of 4 ranks connected; missing: " +
			"rank 1 (n0, pid 101), rank 2 (n1, pid 102), rank 3 (n1, pid 103)"},
		{
			"one machine", near,
			[]job.Client{client("127.0.0.1", 100), client("127.0.0.1", 103)},
			"2 of 4 ranks connected; missing: rank 1 (n0, pid 101), rank 2 (n1, pid 102)",
		},
		{"torch that says no pid", far, []job.Client{client("10.0.0.2", 0), client("10.0.0.2", 0)}, "2 of 4 ranks connected"},
		{"children of ranks", far, []job.Client{client("10.0.0.2", 9), client("10.0.0.2", 8), client("10.0.0.3", 9), client("10.0.0.3", 8)}, ""},
		{"all but one wait", far, []job.Client{
			client("10.0.0.2", 100, "k"), client("10.0.0.2", 101, "k"), client("10.0.0.3", 102), client("10.0.0.3", 103, "k"),
		}, `3 of 4 ranks wait for key "k"; not rank 2 (n1, pid 102)`},
		{"all wait", far, []job.Client{
			client("10.0.0.2", 100, "k"), client("10.0.0.2", 101, "k"), client("10.0.0.3", 102, "k"), client("10.0.0.3", 103, "k"),
		}, `all 4 ranks wait for key "k"`},
		{"a few wait", far, []job.Client{
			client("10.0.0.2", 100, "k"), client("10.0.0.2", 101, "k"), client("10.0.0.3", 102), client("10.0.0.3", 103),
		}, ""},
		{"nobody", far, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := started(t, c.addr)
			m := job.Meeting{Clients: c.clients, Key: "k", Came: len(c.clients)}
			met := job.Met{Node: "n0", Why: s.Meeting(m)}
			_, got := s.Step(met)
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.want != "" && s.Summary().Waits != "4 ranks to end; "+c.want {
				t.Errorf("the summary has %q", s.Summary().Waits)
			}
			if _, again := s.Step(met); again != "" {
				t.Errorf("told again: %q", again)
			}
			if _, stale := s.Step(job.Met{Node: "n0", Attempt: 1, Why: s.Meeting(job.Meeting{Clients: all[:1]})}); stale != "" {
				t.Errorf("told of another attempt: %q", stale)
			}
			if s.Step(job.Met{Node: "n0"}); s.Summary().Waits != "4 ranks to end" {
				t.Errorf("when all have met the summary has %q", s.Summary().Waits)
			}
		})
	}
}

// TestMetAfterTheFirstHaveEnded checks that ranks that exited 0 are not missing.
func TestMetAfterTheFirstHaveEnded(t *testing.T) {
	s := started(t, func(i int) string { return fmt.Sprint("10.0.0.", i+2) })
	for rank := range 3 {
		s.Step(job.Exited{Node: fmt.Sprint("n", rank/2), Rank: rank})
	}
	if got := s.Meeting(job.Meeting{Clients: []job.Client{{Addr: netip.MustParseAddr("10.0.0.3"), PID: 103}}, Came: 1}); got != "" {
		t.Errorf("%q", got)
	}
	if got := s.Meeting(job.Meeting{Came: 1}); got != "" {
		t.Errorf("%q of a crowd", got)
	}
}

// TestManyClients checks the text for too many clients to name.
func TestManyClients(t *testing.T) {
	s := started(t, func(i int) string { return fmt.Sprint("10.0.0.", i+2) })
	for _, c := range []struct {
		m    job.Meeting
		want string
	}{
		{job.Meeting{Came: 3, Waiting: 3, Key: "k"}, "3 of 4 ranks connected"},
		{job.Meeting{Came: 4, Waiting: 3, Key: "k"}, `3 of 4 ranks wait for key "k"`},
		{job.Meeting{Came: 4, Waiting: 4, Key: "k"}, `all 4 ranks wait for key "k"`},
		{job.Meeting{Came: 4, Waiting: 2, Key: "k"}, ""},
		{job.Meeting{}, ""},
	} {
		if got := s.Meeting(c.m); got != c.want {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
}
