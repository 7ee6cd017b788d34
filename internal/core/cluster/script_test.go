package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// TestScripts plays the traces in testdata/scripts, one event a line. The answer has the event,
// reason and actions of each step. "run" answers in place of the nodes of a job until the job runs.
// Run with -rewrite to accept what the code does now.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		m := newSim()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					fmt.Fprintf(&b, "%s\n", line)
					m.play(t, &b, strings.Fields(line))
				}
			}
			return b.String()
		})
	})
}

func (m *sim) play(t *testing.T, b *strings.Builder, f []string) {
	switch f[0] {
	case "join":
		n := machineOf(number(t, f[1][1:]), number(t, f[2]), option(t, f, "cpus", 0))
		n.Labels = labels(f)
		for g := range option(t, f, "held", 0) {
			n.GPUs[g].HeldBy = "pid 4411"
		}
		m.say(t, b, Joined{n, kindOf(n)})
	case "freed":
		m.say(t, b, Freed{f[1], numbers(t, f[2])})
	case "lost":
		m.say(t, b, Lost{f[1], strings.Join(f[2:], " ")})
	case "rejoined":
		m.say(t, b, Rejoined{f[1]})
	case "drain":
		m.say(t, b, Drain{Node: f[1]})
	case "leave":
		m.say(t, b, Drain{f[1], &job.Draining{Node: f[1], Within: time.Minute, Why: "maintenance"}})
	case "submit":
		spec := parseSpec(t, f)
		if err := m.state.Check(spec); err != nil {
			fmt.Fprintf(b, "  refused: %v\n", err)
			return
		}
		m.say(t, b, Submitted{spec})
	case "cancel":
		m.say(t, b, Happened{f[1], job.Cancel{Code: 130, Why: "^C"}})
	case "save":
		m.say(t, b, Happened{f[1], job.Cancel{Code: 143, Why: "saving", Within: 2 * time.Minute, AfterSave: true}})
	case "run":
		m.answer(t, b, f[1])
	case "exit":
		r := m.job(f[1])
		for _, p := range r.places() {
			m.end(r, p, number(t, f[2]), "")
		}
		m.answer(t, b, f[1])
	case "break":
		r := m.job(f[1])
		for _, p := range r.places() {
			if p.node == f[2] {
				m.end(r, p, 1, ecc)
			}
		}
		m.answer(t, b, f[1])
	case "limit":
		limits := Limits{}
		for _, word := range f[1:] {
			user, rest, _ := strings.Cut(word, ":")
			priority, gpus, _ := strings.Cut(rest, "=")
			if limits[user] == nil {
				limits[user] = map[Priority]int{}
			}
			limits[user][Priority(priority)] = number(t, gpus)
		}
		m.say(t, b, Limited{limits})
	case "why":
		fmt.Fprintf(b, "  %s\n", m.state.Why(f[1]))
	case "readmit":
		m.say(t, b, Happened{f[1], job.TimedOut{Kind: job.AlarmExclusion, Seq: m.job(f[1]).exclusion}})
	case "readmit-node":
		m.say(t, b, Readmit{f[1]})
	case "wait":
		m.wait(time.Duration(number(t, f[1])) * time.Second)
	case "charged":
		m.charged(b)
	case "crash":
		if err := m.crash(); err != nil {
			t.Fatal(err)
		}
	case "compact":
		if err := m.compact(); err != nil {
			t.Fatal(err)
		}
	case "jobs":
		for _, j := range m.state.Jobs() {
			fmt.Fprintf(b, "  %s %s: %s\n", j.Spec.Job.ID, j.Summary.Phase, j.Summary.Waits)
		}
	case "nodes":
		for _, n := range m.state.Nodes() {
			fmt.Fprintf(b, "  %s drained %v held %v", n.Name, n.Drained, n.Holds)
			if why := m.state.Avoided(n.Name); why != "" || n.Excluded != nil {
				var excluded []string
				for _, x := range n.Excluded {
					excluded = append(excluded, fmt.Sprintf("{%s %s}", x.Job, x.Why))
				}
				fmt.Fprintf(b, " avoided %q excluded %v", why, excluded)
			}
			b.WriteByte('\n')
		}
	default:
		t.Fatalf("unknown event %q", f)
	}
}

// charged prints the charges of jobs and the idle time, in seconds of nodes and GPUs.
func (m *sim) charged(b *strings.Builder) {
	jobs, others := m.state.Charged(m.at)
	line := func(who string, charged map[string]charge.Time) {
		for _, kind := range sorted(charged) {
			fmt.Fprintf(b, "  %s %s %d %d\n", who, kind, charged[kind].Nodes/1000, charged[kind].GPUs/1000)
		}
	}
	for _, id := range sorted(jobs) {
		line(id, jobs[id])
	}
	line("idle", others.Idle)
}

// answer delivers all messages that are on their way to a job, and all messages that they cause.
func (m *sim) answer(t *testing.T, b *strings.Builder, id string) {
	for {
		i := slices.IndexFunc(m.due, func(h Happened) bool { return h.Job == id })
		if i < 0 {
			return
		}
		ev := m.due[i]
		m.due = slices.Delete(m.due, i, i+1)
		m.say(t, b, ev)
	}
}

func (m *sim) say(t *testing.T, b *strings.Builder, ev Event) {
	out, err := m.step(ev)
	m.show(t, b, out, err)
}

func (m *sim) show(t *testing.T, b *strings.Builder, out Outcome, err error) {
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range out.Steps {
		if st.Reason == "" && len(st.Actions) == 0 {
			continue
		}
		fmt.Fprintf(b, "  %s: %v\n      = %s\n", st.Job, st.Event, st.Reason)
		for _, a := range st.Actions {
			fmt.Fprintf(b, "      > %v\n", a)
		}
		if st.Granted != nil {
			for _, g := range st.Granted.Groups {
				fmt.Fprintf(b, "      granted node rank %d: %s with %d bundles\n", g.NodeRank, g.Node.Name, len(g.Bundles))
			}
		}
	}
	for _, name := range out.Leave {
		fmt.Fprintf(b, "  %s may leave\n", name)
	}
}

// parseSpec reads "submit ID nodes=MIN:MAX gpus=N,M procs=N cpus=N only=0,1 in=ID strategy=S
// restart=P exclude=N priority=P user=U notice=SECONDS grow backfill reserve onlyjob".
func parseSpec(t *testing.T, f []string) Spec {
	spec := Spec{Job: job.Spec{ID: f[1], Restart: job.RestartJob, MaxRestarts: 3}}
	r := &spec.Job.Request
	r.MinNodes, r.MaxNodes = 1, 1
	for _, word := range f[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "nodes":
			least, most, ok := strings.Cut(value, ":")
			r.MinNodes = number(t, least)
			if r.MaxNodes = r.MinNodes; ok {
				r.MaxNodes = number(t, most)
			}
		case "gpus":
			r.GPU, r.PerNode = true, numbers(t, value)
		case "share":
			r.PerGPU = number(t, value)
		case "procs":
			r.PerNode = numbers(t, value)
		case "cpus":
			r.CPUs = number(t, value)
		case "only":
			spec.GPUs = numbers(t, value)
		case "in":
			spec.Within = value
		case "strategy":
			r.Strategy = placement.Strategy(value)
		case "restart":
			spec.Job.Restart = job.Restart(value)
		case "colocated":
			spec.Colocated = number(t, value)
		case "exclude":
			spec.Job.ExcludeAfter, spec.Job.ExcludeFor = number(t, value), time.Hour
		case "grow":
			spec.Job.GrowAfter = time.Minute
		case "priority":
			spec.Priority = Priority(value)
		case "user":
			spec.User = value
		case "notice":
			spec.Job.DrainTime = time.Duration(number(t, value)) * time.Second
		case "backfill":
			spec.Backfill = true
		case "reserve":
			spec.Reserve = true
		case "onlyjob":
			spec.OnlyJob = true
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return spec
}

// labels reads "at=BLOCK.NODE".
func labels(f []string) map[string]string {
	for _, word := range f {
		if at, ok := strings.CutPrefix(word, "at="); ok {
			return map[string]string{placement.TopologyLabel: at}
		}
	}
	return nil
}

func option(t *testing.T, f []string, key string, otherwise int) int {
	for _, word := range f {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return number(t, value)
		}
	}
	return otherwise
}

func numbers(t *testing.T, text string) []int {
	var list []int
	for word := range strings.SplitSeq(text, ",") {
		list = append(list, number(t, word))
	}
	return list
}

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
