package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher/report"
)

var rewrite = flag.Bool("rewrite", false, "write what is expected anew")

// pinned is a model of one State.
type pinned struct{ state *view.State }

func (p *pinned) State() *view.State { return p.state }

// simulated returns the State of a simulated cluster, twenty minutes after its beginning. It must
// be called in a bubble of package synctest.
func simulated(t testing.TB, nodes int) *view.State {
	t.Helper()
	c := &viewtest.Cluster{Nodes: nodes, Slow: 5, Began: time.Now().Add(-20 * time.Minute)}
	m := view.New(map[string]view.Source{"10.0.0.1:29400": c}, view.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	synctest.Wait() // all sources were asked, and all have answered
	cancel()
	<-done
	return m.State()
}

func text(t testing.TB, c *Collector) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// has checks for lines in an exposition, and hasNot that no line has a prefix.
func has(t testing.TB, got string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+got, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("there is no line %s; there are %q", line, sameName(got, name))
		}
	}
}

func hasNot(t testing.TB, got string, beginnings ...string) {
	t.Helper()
	for _, b := range beginnings {
		if strings.Contains("\n"+got, "\n"+b) {
			t.Errorf("there is a line that begins with %s", b)
		}
	}
}

func sameName(got, name string) (all []string) {
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, name) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// TestExposition compares the whole exposition, at the levels and sizes where a person can still
// read it.
func TestExposition(t *testing.T) {
	for _, c := range []struct {
		nodes int
		level Level
	}{{1, Jobs}, {16, Jobs}, {2, Nodes}, {1, Ranks}} {
		t.Run(fmt.Sprintf("%s-%d", c.level, c.nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := simulated(t, c.nodes)
				state.Job("llama-70b").Slow.Ratio = 1.09
				golden(t, fmt.Sprintf("testdata/%s-%d.txt", c.level, c.nodes), text(t, New(c.level, &pinned{state})))
			})
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Fatalf("%s, line %d: %q, not as expected; look at it, and run this test with -rewrite", file, i+1, line)
		}
	}
	t.Fatalf("%s has more", file)
}

// declared returns all families of families.go. No list of them exists in the program.
func declared(t *testing.T) (all []*family) {
	t.Helper()
	text, err := os.ReadFile("families.go")
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]Level{"gauge": Jobs, "counter": Jobs, "ofNode": Nodes, "ofRank": Ranks}
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ += (\w+)\((?:\w+, )?"(\w+)", "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, &family{level: levels[m[1]], base: m[2], help: m[3]})
	}
	if len(all) != bytes.Count(text, []byte(" = "))-2 { // without the two constants of type kind
		t.Fatalf("found %d families of %d", len(all), bytes.Count(text, []byte(" = "))-2)
	}
	return all
}

// TestLint checks Prometheus' own rules for names, units and help.
func TestLint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := simulated(t, 16)
		state.Job("llama-70b").Slow.Ratio = 1
		problems, err := promlint.New(strings.NewReader(text(t, New(Ranks, &pinned{state})))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
	units := []string{"econds", "1970", "Bytes", "Watts", "Celsius", "0 to 1", "CPUs", "1 for", "Whether"}
	for _, f := range declared(t) {
		said := false
		for _, u := range units {
			said = said || strings.Contains(f.help, u)
		}
		for _, end := range []string{"_seconds", "_bytes", "_watts", "_celsius", "_cores"} {
			if strings.HasSuffix(strings.TrimSuffix(f.name(), "_total"), end) && !said {
				t.Errorf("the help of %s does not say its unit: %s", f.name(), f.help)
			}
		}
	}
}

// TestEveryFamilyIsDocumented: the table of the documentation lists all families.
func TestEveryFamilyIsDocumented(t *testing.T) {
	files, err := filepath.Glob("../../../../docs/*metrics*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: there is no document of the metrics", err)
	}
	all := ""
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	for _, f := range declared(t) {
		row := "| `" + f.name() + "`"
		if !strings.Contains(all, row) {
			t.Errorf("no document has a row %s", row)
		}
	}
}

// TestABlindWatcher: metrics without a source do not look healthy, neither before the first report
// nor after the last.
func TestABlindWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := simulated(t, 2)
		m := &pinned{&view.State{At: time.Now(), Source: "n0:29400"}}
		c := New(Jobs, m)
		got := text(t, c)
		has(t, got, `golaunch_up{source="n0:29400"} 0`)
		hasNot(t, got, "golaunch_data_timestamp_seconds{", "golaunch_nodes{", "golaunch_jobs{")

		state.Source, m.state = "n0:29400", state
		state.Answered = state.At.Add(-7 * time.Second)
		heard := fmt.Sprintf(`golaunch_data_timestamp_seconds{source="n0:29400"} %s`, number(seconds(state.Answered)))
		has(t, text(t, c), `golaunch_up{source="n0:29400"} 1`, heard, `golaunch_nodes{state="missing"} 1`)

		state.Trouble, state.At = "connection refused", state.Answered.Add(Stale)
		has(t, text(t, c), `golaunch_up{source="n0:29400"} 0`, heard, `golaunch_nodes{state="missing"} 1`)

		state.At = state.At.Add(time.Second)
		got = text(t, c)
		has(t, got, `golaunch_up{source="n0:29400"} 0`, heard)
		hasNot(t, got, "golaunch_job_", "golaunch_nodes{", "golaunch_jobs{", "golaunch_ranks{")

		state.Trouble, state.Answered = "", state.At
		has(t, text(t, c), `golaunch_up{source="n0:29400"} 1`, `golaunch_nodes{state="missing"} 1`)
	})
}

// number returns a value in the text format.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// TestStragglers: the ratio is the ratio that the view has found. It is absent before that, and
// when ranks no longer report.
func TestStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &viewtest.Cluster{Nodes: 4, Slow: 13, SlowFrom: time.Now().Add(3 * time.Minute), Began: time.Now().Add(-20 * time.Minute), Every: time.Second}
		m := view.New(map[string]view.Source{"a": c}, view.Options{History: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		all := New(Jobs, m)
		const name = `golaunch_straggler_ratio{job="llama-70b"}`
		time.Sleep(5 * time.Second)
		hasNot(t, text(t, all), "golaunch_straggler_ratio{")
		time.Sleep(2 * time.Minute)
		has(t, text(t, all), name+" 1")
		time.Sleep(2 * time.Minute)
		synctest.Wait() // otherwise the second State may be newer
		said := sameName(text(t, all), name)
		if want := fmt.Sprintf("%s %s", name, number(m.State().Job("llama-70b").Slow.Ratio)); len(said) != 1 || said[0] != want || said[0] == name+" 1" {
			t.Errorf("%q, not %q", said, want)
		}
		cancel()
		<-done
		old := m.State()
		old.At = old.At.Add(2 * Stale)
		hasNot(t, text(t, New(Jobs, &pinned{old})), "golaunch_straggler_ratio{")
	})
}

// TestSources: each source has its own state, and a job or node of two sources is shown once.
func TestSources(t *testing.T) {
	now := time.Unix(1e9, 0)
	of := func(source string, jobs ...*view.Job) *pinned {
		nodes := []*view.Node{{NodeStatus: report.NodeStatus{Name: "here"}}}
		return &pinned{&view.State{At: now, Source: source, Version: "v1", Jobs: jobs, Nodes: nodes}}
	}
	job := func(id, phase string, submitted int, over bool) *view.Job {
		j := &view.Job{JobStatus: report.JobStatus{ID: id, Phase: phase, Submitted: now.Add(time.Duration(submitted) * time.Second)}}
		if over {
			j.Finished = now
		}
		return j
	}
	a, b := of("a", job("x", "finished", 3, true), job("y", "gathering", 1, false)), of("b", job("x", "running", 2, false), job("y", "running", 2, false))
	bad := &pinned{&view.State{At: now, Source: "c", Trouble: "no route to host"}}
	got := text(t, New(Nodes, a, b, bad, a))
	has(t, got, `golaunch_up{source="a"} 1`, `golaunch_up{source="b"} 1`, `golaunch_up{source="c"} 0`, `golaunch_nodes{state="spare"} 1`,
		`golaunch_job_state{job="x",state="running"} 1`, `golaunch_job_state{job="y",state="running"} 1`, `golaunch_jobs{state="running"} 2`)
}

// TestBounds checks that only the newest of many finished jobs are shown, and that each name is
// bounded.
func TestBounds(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &view.State{At: now, Source: "a", Version: "v1"}
	for i := range 50 {
		at := now.Add(time.Duration(i) * time.Second)
		s.Jobs = append(s.Jobs, &view.Job{JobStatus: report.JobStatus{
			ID: fmt.Sprintf("over-%02d", i), Phase: "finished", Submitted: at, Finished: at, Result: &report.Result{Ending: "success"},
		}})
	}
	nasty := "\x1b[31m\xff\x00\n\"\\" + strings.Repeat("ä", 300)
	for range 2 { // two names that are equal when cut
		s.Jobs = append(s.Jobs, &view.Job{JobStatus: report.JobStatus{ID: nasty, Title: nasty, Phase: "running", Submitted: now}})
		nasty += "more"
	}
	s.Nodes = append(s.Nodes, &view.Node{NodeStatus: report.NodeStatus{Name: nasty}})
	got := text(t, New(Ranks, &pinned{s}))
	if n := len(sameName(got, "golaunch_job_info")); n != MaxOver+1 {
		t.Errorf("there are %d jobs, not %d", n, MaxOver+1)
	}
	has(t, got, `golaunch_jobs{state="finished"} 50`)
	hasNot(t, got, `golaunch_job_info{command="",job="over-29"`)
	for line := range strings.Lines(got) {
		if strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\x00\r") || len(line) > 2*maxName+maxText+100 {
			t.Errorf("%q", line)
		}
	}
}

// FuzzClean: for all texts, the result is short and valid, and a text that is already short and
// valid is unchanged.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "train.py --x", "\x1b]0;title\a", "\xff\xfe", strings.Repeat("é", 200), "a\u2028b\u0085c"} {
		f.Add(s, 40)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = 8 + int(uint(most)%300)
		got := clean(s, most)
		if len(got) > most {
			t.Errorf("%q has %d bytes, more than %d", got, len(got), most)
		}
		if strings.ToValidUTF8(got, "") != got || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u2028' }) {
			t.Errorf("%q", got)
		}
		if clean(got, most) != got {
			t.Errorf("%q is cleaned further, to %q", got, clean(got, most))
		}
	})
}

// TestStartTimes derives the phases of the newest starts from decisions.
func TestStartTimes(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(seconds) * time.Second) }
	moment := func(seconds int, to, cause string, attempt int) report.Moment {
		return report.Moment{At: at(seconds), To: to, Cause: cause, Attempt: attempt}
	}
	first := []report.Moment{
		{At: at(0), Attempt: -1, Reason: "waits"}, moment(10, "starting", "", -1), moment(11, "starting", "", 0), moment(13, "training", "", 0),
	}
	again := []report.Moment{
		moment(50, "stopping", "", 0), moment(52, "backoff", "gpu-lost", 0), moment(53, "starting", "", 0), moment(54, "starting", "", 1),
		moment(60, "training", "", 1),
	}
	stillborn := []report.Moment{
		moment(70, "stopping", "", 1), moment(71, "backoff", "oom", 1), moment(72, "starting", "", 2), moment(73, "stopping", "", 2),
		moment(74, "backoff", "oom", 2), moment(80, "starting", "", 3), moment(82, "training", "", 3),
	}
	for _, c := range []struct {
		name    string
		history []report.Moment
		want    string
	}{
		{"nothing", nil, "map[]"},
		{"it waits", first[:1], "map[]"},
		{"it starts", first[:3], "map[queued:10s]"},
		{"it trains", first, "map[queued:10s starting:3s]"},
		{"it failed", slices.Concat(first, again[:2]), "map[queued:10s starting:3s]"},
		{"it recovered", slices.Concat(first, again), "map[queued:10s recovery:10s starting:7s]"},
		{"a start failed in between", slices.Concat(first, again, stillborn), "map[queued:10s recovery:12s starting:2s]"},
		{"the beginning is forgotten", again, "map[recovery:10s starting:7s]"},
		{"a clock was set back", []report.Moment{moment(10, "starting", "", 0), moment(5, "training", "", 0)}, "map[queued:10s starting:0s]"},
	} {
		if got := fmt.Sprint(startTimes(report.JobStatus{Submitted: at(0), History: c.history})); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

// BenchmarkScrape scrapes a job with 10,000 ranks.
func BenchmarkScrape(b *testing.B) {
	for _, level := range Levels {
		b.Run(string(level), func(b *testing.B) {
			c := &viewtest.Cluster{Nodes: 1250 * 8 / 7, Slow: 5, Began: time.Now().Add(-20 * time.Minute)}
			m := view.New(map[string]view.Source{"a": c}, view.Options{History: time.Minute})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() { m.Run(ctx); close(done) }()
			for {
				changed := m.Changed()
				if s := m.State(); len(s.Jobs) > 0 && len(s.Jobs[0].Ranks) >= 9_992 {
					break
				}
				<-changed
			}
			cancel()
			<-done
			all := New(level, m)
			size := 0
			for b.Loop() {
				var out bytes.Buffer
				if err := all.Write(&out); err != nil {
					b.Fatal(err)
				}
				size = out.Len()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
