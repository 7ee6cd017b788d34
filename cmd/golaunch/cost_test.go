package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
)

// TestCost runs jobs of two users on nodes of two kinds, and then makes the nodes leave, so that
// the hours stay as they are. The verb, its JSON, the metrics and the page show the same hours and
// costs. So does a later coordinator that goes on with the log, at the prices of its own file.
func TestCost(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	coordinate := func(a100, t4 float64) *process {
		return s.coordinate("--capacity", s.capacity(fmt.Sprintf(`kinds:
  a100: {gpus: 2, max: 1, cost: %v, exec: [echo, '{"nodes": []}']}
  t4: {gpus: 1, max: 1, cost: %v, exec: [echo, '{"nodes": []}']}
`, a100, t4)))
	}
	s.head.kill()
	coordinator := coordinate(2e6, 1e6)
	agents := []*process{s.join(1, "n10", 2, "--label", "capacity.kind=a100"), s.join(2, "n9", 1, "--label", "capacity.kind=t4")}
	s.start(0, "--job-id", "wide", "--nodes", "2", "--gpus-per-node", "1", "--", "true").ends(0)
	const daemon = 1
	s.submit(s.nodes[0], daemon, "--job-id", "deep", "--gpus-per-node", "2", "--", "true").ends(0)
	for i, a := range agents {
		a.signal(syscall.SIGTERM)
		a.ends(143)
		coordinator.line([]string{"n10", "n9"}[i] + " is gone")
	}

	all := s.costs()
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"(idle) a100", "(idle) t4", "daemon a100", "root a100", "root t4"}) {
		t.Fatalf("there are costs of %q", got)
	}
	price := map[string]float64{"a100": 2e6, "t4": 1e6}
	text, page, metrics := s.do("cost", "--all"), s.page(), s.do("metrics")
	for name, c := range all {
		if c.NodeHours <= 0 || c.GPUHours < c.NodeHours || !near(*c.Cost, price[c.Kind]*c.NodeHours) {
			t.Errorf("%s: %+v, which costs %v", name, c, *c.Cost)
		}
		row := fmt.Sprintf(`(?m)^%s +%.2f +%.2f +%.2f$`, strings.ReplaceAll(regexp.QuoteMeta(name), " ", " +"), c.NodeHours, c.GPUHours, *c.Cost)
		if !regexp.MustCompile(row).MatchString(text) {
			t.Errorf("cost prints no %s:\n%s", row, text)
		}
		if p := page[name]; !near(p.Nodes, c.NodeHours) || !near(p.GPUs, c.GPUHours) || !near(p.Cost, *c.Cost) {
			t.Errorf("%s: the page has %+v, and cost %+v", name, p, c)
		}
		family, labels := "charged", fmt.Sprintf(`{kind=%q,user=%q}`, c.Kind, c.User)
		if c.User == "" {
			family, labels = "idle", fmt.Sprintf(`{kind=%q}`, c.Kind)
		}
		for unit, hours := range map[string]float64{"node": c.NodeHours, "gpu": c.GPUHours} {
			if got := metric(metrics, "golaunch_"+family+"_"+unit+"_seconds_total"+labels); !near(got, 3600*hours) {
				t.Errorf("%s: the metrics have %v %s seconds, and cost %v hours", name, got, unit, hours)
			}
		}
	}

	coordinator.kill()
	coordinate(4e6, 1e6)
	price["a100"] = 4e6
	again := s.costs()
	for name, c := range all {
		if a := again[name]; len(again) != len(all) || a.NodeHours != c.NodeHours || a.GPUHours != c.GPUHours || !near(*a.Cost, price[c.Kind]*c.NodeHours) {
			t.Errorf("%s: after a restart %+v, before %+v", name, a, c)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*math.Abs(b) }

// costs returns the costs of users and of idle nodes, by name and kind. The costs of jobs must be
// the same.
func (s *shared) costs() map[string]listing.Cost {
	s.t.Helper()
	var c listing.Costs
	if err := json.Unmarshal([]byte(s.do("cost", "--all", "--json")), &c); err != nil {
		s.t.Fatal(err)
	}
	all, jobs := map[string]listing.Cost{}, map[string]float64{}
	for _, x := range c.Idle {
		all["(idle) "+x.Kind] = x
	}
	for _, x := range c.Jobs {
		jobs[x.User+" "+x.Kind] += x.NodeHours
	}
	for _, x := range c.Users {
		name := x.User + " " + x.Kind
		if all[name] = x; !near(jobs[name], x.NodeHours) {
			s.t.Errorf("%s: the jobs have had %v node-hours, and the user %v", name, jobs[name], x.NodeHours)
		}
	}
	return all
}

// charged is what the page shows of a user or of idle nodes.
type charged struct {
	User, Kind        string
	Idle              bool
	Nodes, GPUs, Cost float64
}

// page returns what a browser shows on the cluster's page, by name and kind.
func (s *shared) page() map[string]charged {
	s.t.Helper()
	d := s.start(0, "dashboard", "--listen", "127.0.0.1:0")
	link := d.match(`^(http://127\.0\.0\.1:\d+)/login\?token=\w+$`)
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	browser := &http.Client{Jar: jar, Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			s.nodes[0].Do(s.t, func() { c, err = (&net.Dialer{}).DialContext(ctx, network, addr) })
			return c, err
		},
	}}
	defer browser.CloseIdleConnections()
	get := func(at, key string) *http.Response {
		s.t.Helper()
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, at, nil)
		must(s.t, err)
		r.Header.Set("X-Golaunch-Key", key)
		answer, err := browser.Do(r)
		must(s.t, err)
		s.t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	login, err := io.ReadAll(get(link[0], "").Body)
	must(s.t, err)
	key := regexp.MustCompile(`name="key" content="(\w+)"`).FindSubmatch(login)
	if key == nil {
		s.t.Fatalf("no key in %s", login)
	}
	event, err := bufio.NewReader(get(link[1]+"/api/events?page=cluster", string(key[1])).Body).ReadBytes('\n')
	must(s.t, err)
	var shown struct{ Charges []charged }
	must(s.t, json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &shown))
	all := map[string]charged{}
	for _, c := range shown.Charges {
		if c.Idle {
			c.User = "(idle)"
		}
		all[c.User+" "+c.Kind] = c
	}
	return all
}
