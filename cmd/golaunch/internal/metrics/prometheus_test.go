package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
)

const grafana = "../../../../examples/grafana"

// patience bounds the waits for Prometheus.
const patience = 3 * time.Minute

// tool finds a program of Debian's package prometheus. On a machine without the package, the test
// is skipped; in CI it fails.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		suite.Missing(t, "%v: apt-get install prometheus", err)
	}
	return path
}

// target is a cluster that Prometheus scrapes; each scrape advances it.
type target struct {
	mu      sync.Mutex
	state   *view.State
	scrapes int
	// next changes the cluster before a scrape.
	next func(s *view.State, scrape int)
	// scraped gets a value for each scrape, unless it is full.
	scraped chan struct{}
	// gone is true if the target shows nothing any more.
	gone atomic.Bool
}

// State returns the State of a scrape, at the time of the scrape.
func (c *target) State() *view.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := copied(c.state)
	c.next(s, c.scrapes)
	c.scrapes++
	return s
}

// copied returns a copy whose jobs and ranks can be changed.
func copied(s *view.State) *view.State {
	now := time.Now()
	next := *s
	next.At, next.Jobs, next.Nodes = now, nil, nil
	for _, n := range s.Nodes {
		node := *n
		node.Samples = at(node.Samples, now)
		next.Nodes = append(next.Nodes, &node)
	}
	for _, j := range s.Jobs {
		job := *j
		job.Ranks = nil
		for _, r := range j.Ranks {
			rank := *r
			rank.Samples = at(rank.Samples, now)
			job.Ranks = append(job.Ranks, &rank)
		}
		if j.Goodput != nil {
			job.Goodput = new(*j.Goodput)
		}
		next.Jobs = append(next.Jobs, &job)
	}
	return &next
}

// at returns the newest sample, with the given time.
func at(all []report.Sample, now time.Time) []report.Sample {
	if len(all) == 0 {
		return nil
	}
	newest := all[len(all)-1]
	newest.At = now
	return []report.Sample{newest}
}

func (c *target) serve(t *testing.T, others ...Model) (addr string) {
	t.Helper()
	all := New(Nodes, append([]Model{c}, others...)...)
	h := all.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.gone.Load() {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
		select {
		case c.scraped <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// await waits for the given number of further scrapes; then Prometheus has stored the scrape before
// the last.
func (c *target) await(t *testing.T, n int) {
	t.Helper()
	limit := time.After(patience)
	for range n {
		select {
		case <-c.scraped:
		case <-limit:
			t.Fatal("Prometheus does not scrape")
		}
	}
}

// measured returns the State of a simulated cluster that began some time ago.
func measured(t *testing.T, nodes int, ago time.Duration) *view.State {
	t.Helper()
	m := view.New(map[string]view.Source{"n0:29400": &viewtest.Cluster{Nodes: nodes, Slow: 5, Began: time.Now().Add(-ago)}}, view.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	for {
		changed := m.Changed()
		if s := m.State(); len(s.Jobs) > 0 && len(s.Jobs[0].Ranks) == s.Jobs[0].JobStatus.Ranks {
			cancel()
			<-done
			return s
		}
		select {
		case <-changed:
		case <-done:
			t.Fatal("the simulated cluster does not answer")
		}
	}
}

// healthy is a cluster in which a job trains.
func healthy(t *testing.T) *target {
	return &target{state: measured(t, 1, 20*time.Minute), scraped: make(chan struct{}, 100), next: func(s *view.State, scrape int) {
		s.Coordinators = []string{"a", "b", "c"}
		j := s.Job("llama-70b")
		j.Progress.Step += float64(2 * scrape)
		j.Goodput.Training += float64(scrape) / 450
		j.Slow.Ratio = 1
		for _, r := range j.Ranks {
			r.Now.Lines += float64(scrape)
		}
	}}
}

// failing is a cluster with every fault for which there is a rule, except that its counters change
// after the first scrapes.
func failing(t *testing.T) *target {
	return &target{state: measured(t, 16, 3*time.Hour), scraped: make(chan struct{}, 100), next: func(s *view.State, scrape int) {
		s.Source, s.Coordinators, s.Silent = "n1:29400", []string{"a", "b", "c"}, []string{"c"}
		s.Nodes[0].Excluded = []report.Exclusion{{Why: "Xid 79"}}
		j := s.Job("llama-70b")
		j.Ranks = j.Ranks[1:]
		j.Goodput.Goodput, j.Slow.Ratio = 0.5, 1.3
		j.Restarts = 0
		for _, r := range j.Ranks {
			r.Now.BeatAge, r.Now.GPUUse, r.Now.GPUTemperature = 1200, 0.02, 95
		}
		if scrape >= 2 {
			j.Restarts, j.Ranks[3].Now.Xids = 4, 2
		}
		over := s.Job("tokenize")
		over.Finished, over.Result = s.At, &report.Result{Code: 137, Ending: report.EndProgram}
	}}
}

// scraper is a running Prometheus.
type scraper struct{ at string }

// startPrometheus starts a Prometheus that scrapes two targets, with the label "job" in the two
// ways of the example, and sends its alerts.
func startPrometheus(t *testing.T, good, bad, alerts string) *scraper {
	t.Helper()
	path, dir := tool(t, "prometheus"), t.TempDir()
	rules, err := os.ReadFile(filepath.Join(grafana, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	// The interval is also the limit of a scrape: if a scrape is too late, the cluster counts as
	// silent.
	config := strings.NewReplacer("15s", "3s", "127.0.0.1:8265", good, "127.0.0.1:9100", bad).Replace(example(t))
	config += fmt.Sprintf("\nalerting:\n  alertmanagers:\n    - static_configs:\n        - targets: [%q]\n", alerts)
	for name, text := range map[string]string{
		"prometheus.yml": config, "alerts.yml": regexp.MustCompile(`(?m)^\s+for: .*$`).ReplaceAllString(string(rules), ""),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := fmt.Sprint("127.0.0.1:", nettest.Port(t))
	cmd := exec.Command(path, "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", at, "--log.level", "warn")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // Prometheus may have ended
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("prometheus: %v\n%s", err, said.String())
		}
	})
	return &scraper{at}
}

// get asks the API of Prometheus.
func (p *scraper) get(t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	answer, err := http.Get("http://" + p.at + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %v: %s, %v\n%s", path, query, answer.Status, err, data)
	}
	whole := struct{ Data any }{into}
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
}

// vector returns the number of values of an expression.
func (p *scraper) vector(t *testing.T, expr string) (numbers int) {
	t.Helper()
	var got struct {
		Result []struct {
			Value [2]any
		}
	}
	p.get(t, "query", url.Values{"query": {expr}}, &got)
	for _, r := range got.Result {
		if r.Value[1] != "NaN" {
			numbers++
		}
	}
	return numbers
}

// pager receives the messages of Prometheus to an Alertmanager: which alerts fire, and where.
type pager struct {
	mu    sync.Mutex
	fired map[string][]string
	// told is closed and replaced with each message.
	told chan struct{}
}

func (p *pager) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var alerts []struct {
		Labels map[string]string
		EndsAt time.Time
	}
	if json.NewDecoder(r.Body).Decode(&alerts) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range alerts {
		at, name := a.Labels["instance"], a.Labels["alertname"]
		if a.EndsAt.Before(time.Now()) {
			continue // a resolved alert is sent for a long time
		}
		if !slices.Contains(p.fired[at], name) {
			p.fired[at] = append(p.fired[at], name)
		}
	}
	close(p.told)
	p.told = make(chan struct{})
}

// at returns the alerts that have fired at an instance, or without an instance.
func (p *pager) at(instance string) ([]string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.fired[instance])), p.told
}

// forget forgets the alerts without an instance, which fired before Prometheus had scraped any
// target.
func (p *pager) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fired, "")
}

// await waits until all of the given alerts have fired.
func (p *pager) await(t *testing.T, instance string, want []string) {
	t.Helper()
	limit := time.After(patience)
	for {
		fired, told := p.at(instance)
		missing := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return slices.Contains(fired, name) })
		if len(missing) == 0 {
			return
		}
		select {
		case <-told:
		case <-limit:
			t.Fatalf("these alerts do not fire: %q", missing)
		}
	}
}

// TestPrometheus: a real Prometheus reads the metrics. Each panel of the board shows data, and each
// rule fires for its fault and no other fault.
func TestPrometheus(t *testing.T) {
	tool(t, "prometheus")
	good, bad, page := healthy(t), failing(t), &pager{fired: map[string][]string{}, told: make(chan struct{})}
	alertmanager := httptest.NewServer(page)
	defer alertmanager.Close()
	unreached := &pinned{&view.State{Source: "n9:29400", Trouble: "no route to host"}}
	fine, broken := good.serve(t), bad.serve(t, unreached)
	p := startPrometheus(t, fine, broken, strings.TrimPrefix(alertmanager.URL, "http://"))
	good.await(t, 6)
	bad.await(t, 6)
	page.forget()

	board := readBoard(t)
	t.Run("board", func(t *testing.T) {
		for _, q := range board.queries() {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*").Replace(q.expr)
			if p.vector(t, expr) == 0 {
				t.Errorf("panel %q shows nothing: %s", q.panel, expr)
			}
		}
		var jobs []string
		p.get(t, "label/job/values", url.Values{"match[]": {"golaunch_job_info"}}, &jobs)
		if want := []string{"eval-nightly", "llama-70b", "moe-ablation-3", "tokenize"}; !slices.Equal(jobs, want) {
			t.Errorf("the variable has the jobs %q, not %q", jobs, want)
		}
	})
	rules := p.rules(t)
	t.Run("alerts", func(t *testing.T) {
		want := slices.DeleteFunc(slices.Clone(rules), func(name string) bool { return name == "GolaunchAbsent" })
		page.await(t, broken, want)
		good.await(t, 3) // the rules are evaluated as often
		if fired, _ := page.at(fine); len(fired) > 0 {
			t.Errorf("%q fire where all is well", fired)
		}
		if fired, _ := page.at(""); len(fired) > 0 {
			t.Errorf("%q fire while golaunch is watched", fired)
		}
	})
	t.Run("absent", func(t *testing.T) {
		good.gone.Store(true)
		bad.gone.Store(true)
		page.await(t, "", []string{"GolaunchAbsent"})
	})
	if len(rules) < 15 {
		t.Errorf("there are %d rules: %q", len(rules), rules)
	}
}

func (p *scraper) rules(t *testing.T) (names []string) {
	t.Helper()
	var got struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get(t, "rules", nil, &got)
	for _, g := range got.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Name)
			if r.Health == "err" {
				t.Errorf("rule %s: %s", r.Name, r.LastError)
			}
		}
	}
	return names
}

// example returns the configuration in examples/grafana, with an existing token.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(grafana, "prometheus.yml"))
	token := filepath.Join(t.TempDir(), "token")
	if err := errors.Join(err, os.WriteFile(token, []byte(strings.Repeat("k", 64)), 0o600)); err != nil {
		t.Fatal(err)
	}
	const there = "/etc/prometheus/golaunch.token"
	if !strings.Contains(string(text), there) {
		t.Errorf("prometheus.yml does not name %s", there)
	}
	return strings.ReplaceAll(string(text), there, token)
}

// TestExamples: promtool accepts the files.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(grafana, "alerts.yml"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "alerts.yml"), rules, 0o600),
		os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(example(t)), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"check", "config", "prometheus.yml"}} {
		cmd := exec.Command(tool(t, "promtool"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// TestPromtool: Prometheus' own linter accepts an exposition.
func TestPromtool(t *testing.T) {
	path := tool(t, "promtool")
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: there is none", err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "check", "metrics")
		cmd.Stdin = f
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		f.Close()
	}
}
