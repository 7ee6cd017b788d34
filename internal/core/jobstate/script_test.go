package jobstate

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// TestScripts plays the traces in testdata/scripts. A block "step" has one event a line. Some
// events have UNIT/ATTEMPT. The answer has each event, its reason and its actions. Run with
// -rewrite to accept what the code does now.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var s *State
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s = New(parseSpec(t, d))
				return s.Summary().Waits + "\n"
			case "step":
				return play(t, s, d.Input)
			case "summary":
				return describe(s.Summary())
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func parseSpec(t *testing.T, d *datadriven.TestData) job.Spec {
	spec := job.Spec{ID: "j", Restart: job.RestartJob, Grace: 30 * time.Second}
	r := &spec.Request
	restart, strategy := "", ""
	d.MaybeScanArgs(t, "restart", &restart)
	d.MaybeScanArgs(t, "strategy", &strategy)
	d.MaybeScanArgs(t, "restarts", &spec.MaxRestarts)
	if d.HasArg("refill") {
		spec.RefillAfter = time.Hour
	}
	d.ScanArgs(t, "min", &r.MinNodes)
	r.MaxNodes = r.MinNodes
	d.MaybeScanArgs(t, "max", &r.MaxNodes)
	perNode := 1
	d.MaybeScanArgs(t, "ranks", &perNode)
	r.PerNode, r.GPU = []int{perNode}, d.HasArg("gpu")
	r.Strategy = placement.Strategy(strategy)
	if restart != "" {
		spec.Restart = job.Restart(restart)
	}
	if d.HasArg("groups") {
		spec.Restart, spec.MinGroups = job.RestartGroup, 1
		d.ScanArgs(t, "groups", &spec.Groups)
		d.MaybeScanArgs(t, "mingroups", &spec.MinGroups)
	}
	d.MaybeScanArgs(t, "lost", &spec.LostRanks)
	spec.FixedPool = d.HasArg("fixed")
	if d.HasArg("codes") {
		spec.ExitCodes = map[report.Ending]int{report.EndBudget: 76, report.EndCancelled: 77}
	}
	if d.HasArg("grow") {
		spec.GrowAfter, spec.DrainTime = 10*time.Minute, time.Minute
	}
	if d.HasArg("exclude") {
		d.ScanArgs(t, "exclude", &spec.ExcludeAfter)
		spec.ExcludeFor = time.Hour
	}
	return spec
}

func play(t *testing.T, s *State, input string) string {
	var b strings.Builder
	for line := range strings.Lines(input) {
		ev := parseEvent(t, strings.TrimSpace(line))
		actions, reason := s.Step(ev)
		fmt.Fprintf(&b, "%v\n", ev)
		if reason != "" {
			fmt.Fprintf(&b, "  = %s\n", reason)
		}
		for _, a := range actions {
			fmt.Fprintf(&b, "  > %v\n", a)
		}
	}
	return b.String()
}

// parseEvent reads one line of a script.
func parseEvent(t *testing.T, line string) job.Event {
	f := strings.Fields(line)
	rest := func(i int) string { return strings.Join(f[i:], " ") }
	var unit, attempt int
	at := func(i int) { scan(t, f[i], "%d/%d", &unit, &attempt) }
	num := func(i int) (n int) {
		scan(t, f[i], "%d", &n)
		return n
	}
	switch f[0] {
	case "submitted":
		return job.Submitted{}
	case "joined":
		n := placement.Node{Name: f[1], Addr: netip.MustParseAddr(f[2])}
		if len(f) > 3 {
			n.GPUs = gpus(num(3))
		}
		for i := 4; i < len(f); i++ { // the GPUs that other processes hold
			n.GPUs[num(i)].HeldBy = "pid 4411"
		}
		return job.Joined{Node: n}
	case "freed":
		ev := job.Freed{Node: f[1]}
		for i := 2; i < len(f); i++ {
			ev.GPUs = append(ev.GPUs, num(i))
		}
		return ev
	case "lost":
		return job.Lost{Node: f[1], Why: rest(2)}
	case "rejoined":
		return job.Rejoined{Node: f[1]}
	case "draining":
		within, err := time.ParseDuration(f[2])
		if err != nil {
			t.Fatal(err)
		}
		return job.Draining{Node: f[1], Within: within, Why: rest(3)}
	case "ready":
		at(2)
		return job.Ready{Node: f[1], Unit: unit, Attempt: attempt}
	case "prepared":
		at(2)
		return job.Prepared{Node: f[1], Unit: unit, Attempt: attempt, Port: num(3)}
	case "unprepared":
		at(2)
		return job.Prepared{Node: f[1], Unit: unit, Attempt: attempt, Err: rest(3)}
	case "reached", "unreached":
		return job.Reached{Node: f[1], Seq: num(2), Err: rest(3)}
	case "unable": // to start an attempt: node 0 is asked for a port, another node whether it reaches the port
		e := report.Exit{Code: 127, Spawn: rest(3)}
		if seq, err := strconv.Atoi(f[2]); err == nil {
			return job.Reached{Node: f[1], Seq: seq, Unable: e}
		}
		at(2)
		return job.Prepared{Node: f[1], Unit: unit, Attempt: attempt, Unable: e}
	case "started":
		at(2)
		return job.Started{Node: f[1], Unit: unit, Attempt: attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}}
	case "stalled":
		at(2)
		e := job.Stalled{Node: f[1], Unit: unit, Attempt: attempt}
		if last := f[len(f)-1]; last[0] == '+' { // the number that moves
			scan(t, last, "+%d", &e.Moving)
			f = f[:len(f)-1]
		}
		e.Ranks = parseStill(t, f[3:])
		return e
	case "exited":
		at(2)
		return job.Exited{Node: f[1], Unit: unit, Attempt: attempt, Rank: num(3), Exit: parseExit(t, f[4:])}
	case "leaves": // a rank that exits 0, at a second
		at(2)
		return job.Exited{Node: f[1], Unit: unit, Attempt: attempt, Rank: num(3), At: time.Unix(int64(num(4)), 0)}
	case "says": // a rank that ends with code 1, at a second, after words
		at(2)
		words, told := strings.CutPrefix(rest(5), "told ")
		words, alike := strings.CutPrefix(words, "alike")
		return job.Exited{
			Node: f[1], Unit: unit, Attempt: attempt, Rank: num(3), Exit: report.Exit{Code: 1}, At: time.Unix(int64(num(4)), 0), Told: told, Alike: alike, Tail: words,
		}
	case "stopped":
		at(2)
		return job.Stopped{Node: f[1], Unit: unit, Attempt: attempt}
	case "elapsed":
		at(1)
		return job.Elapsed{Unit: unit, Attempt: attempt}
	case "timedout":
		return job.TimedOut{Kind: job.AlarmKind(f[1]), Seq: num(2)}
	case "cancel":
		return job.Cancel{Code: num(1), Why: rest(2)}
	case "signalled":
		return job.Signalled(num(1), rest(2), 0)
	case "expire", "expireloosely", "expiretold":
		within, err := time.ParseDuration(f[2])
		if err != nil {
			t.Fatal(err)
		}
		ev := job.Cancel{Code: num(1), Why: rest(3), Within: within, Loose: f[0] == "expireloosely"}
		if f[0] != "expiretold" {
			ev.Ending = report.EndPreempted
		}
		return ev
	}
	t.Fatalf("unknown event %q", line)
	return nil
}

// parseStill reads RANK, RANK:STEP for a rank with a heartbeat, or either with =DOES, for each rank
// that has not moved for a minute.
func parseStill(t *testing.T, f []string) (ranks []job.Still) {
	for _, text := range f {
		r := job.Still{For: time.Minute, Step: -1}
		text, r.Does, _ = strings.Cut(text, "=")
		rank, step, beat := strings.Cut(text, ":")
		if r.Beat = beat; beat {
			scan(t, step, "%d", &r.Step)
		}
		scan(t, rank, "%d", &r.Rank)
		r.Does = cmp.Or(r.Does, "asleep")
		ranks = append(ranks, r)
	}
	return ranks
}

// parseExit reads "CODE", "signal N", "oom N" or "spawn CODE WHY".
func parseExit(t *testing.T, f []string) (e report.Exit) {
	switch f[0] {
	case "signal", "oom":
		scan(t, f[1], "%d", &e.Signal)
		e.Code, e.OOM = 128+e.Signal, f[0] == "oom"
	case "spawn":
		scan(t, f[1], "%d", &e.Code)
		e.Spawn = strings.Join(f[2:], " ")
	default:
		scan(t, f[0], "%d", &e.Code)
	}
	return e
}

func scan(t *testing.T, text, format string, to ...any) {
	if _, err := fmt.Sscanf(text, format, to...); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

func gpus(n int) []placement.GPU {
	list := make([]placement.GPU, n)
	for i := range list {
		list[i].Index = i
	}
	return list
}

func describe(sum job.Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, attempt %d, %d of %d restarts: %s\n", sum.Phase, sum.Attempt, sum.Restarts, sum.MaxRestarts, sum.Waits)
	for _, n := range sum.Nodes {
		fmt.Fprintf(&b, "  %s node rank %d, %s, live %v\n", words.Named(n.Node), n.NodeRank, words.Count(len(n.Ranks), "rank"), n.Live)
	}
	return b.String()
}
